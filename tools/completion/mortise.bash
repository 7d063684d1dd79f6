# bash completion for mortise(1)

# Sets `line` (the words up to the cursor, as mortise gets them), `at` (where each begins in COMP_WORDS) and `breaks`: bash also
# splits at the ':', '=' and '@' of URLs and names.
_mortise_split() {
    local rest=$COMP_LINE word i
    breaks=${COMP_WORDBREAKS//[!:=@]/}
    line=() at=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((i == 0)) || [[ $rest == [[:blank:]]* || -z $breaks ]] ||
            [[ $word != +(["$breaks"]) && ${COMP_WORDS[i - 1]} != +(["$breaks"]) ]]; then
            line+=("$word") at+=("$i")
        else
            line[${#line[@]} - 1]+=$word
        fi
        rest=${rest#"${rest%%[![:blank:]]*}"}
        rest=${rest#"$word"}
    done
}

# The options that name the configuration, as `config`.
_mortise_config() {
    local i
    config=()
    for ((i = 1; i < ${#line[@]} - 1; i++)); do
        case ${line[i]} in
        -C | --config) config=(-C "${line[i + 1]}") ;;
        --config=*) config=(-C "${line[i]#*=}") ;;
        esac
    done
}

# Names of held locks that can be typed as they are: those without blanks, quotes or escapes.
_mortise_names() {
    local config
    _mortise_config
    timeout 2 "${line[0]}" "${config[@]}" list "$1" 2>/dev/null | cut -f 1 |
        grep -v '[][ \\"'\''$`*?(){}<>|&;!]'
}

# The tokens of the lock that is named in the line, from `status`: the user has seen who holds it, or will see it.
_mortise_token() {
    local config name='' i
    _mortise_config
    for ((i = 1; i < ${#line[@]} - 1; i++)); do
        case ${line[i]} in
        -C | --config) i=$((i + 1)) ;;
        -* | break) ;;
        *) name=${line[i]} ;;
        esac
    done
    [ -n "$name" ] || return
    timeout 2 "${line[0]}" "${config[@]}" status --json -- "$name" 2>/dev/null |
        grep -o '"token":"[1-9][0-9]*"' | tr -dc '0-9\n' | sort -u
}

_mortise_modules() {
    timeout 2 "${line[0]}" drivers 2>/dev/null | cut -f 1
}

# What can follow, as COMPREPLY.
_mortise_offer() {
    local word=$1 before=$2
    local command='' names=0 i
    local common='--config --help --version'

    for ((i = 1; i < ${#line[@]} - 1; i++)); do
        case ${line[i]} in
        --) # from here on it is another command's line
            if declare -F _command_offset >/dev/null; then
                _command_offset $((at[i] + 1))
            else
                mapfile -t COMPREPLY < <(compgen -c -- "$word")
            fi
            return
            ;;
        -C | --config | -w | --wait | --timeout | -E | --conflict-exit-code | --ttl | --grace | --on-loss | \
            --token | --interval | --section | --permits | --socket | --listen | --token-file) i=$((i + 1)) ;;
        -*) ;;
        *) if [ -z "$command" ]; then command=${line[i]}; else names=$((names + 1)); fi ;;
        esac
    done

    case $before in
    -C | --config | --socket | --token-file)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
        ;;
    --on-loss)
        mapfile -t COMPREPLY < <(compgen -W 'kill warn' -- "$word")
        return
        ;;
    -w | --wait | --timeout)
        mapfile -t COMPREPLY < <(compgen -W '10s 1m forever' -- "$word")
        return
        ;;
    --listen)
        mapfile -t COMPREPLY < <(compgen -W '127.0.0.1:9750' -- "$word")
        return
        ;;
    --token)
        mapfile -t COMPREPLY < <(compgen -W "$(_mortise_token)" -- "$word")
        return
        ;;
    -E | --conflict-exit-code | --ttl | --grace | --interval | --section | --permits)
        return
        ;;
    esac

    local words=''
    case $command in
    '')
        words="run status list break watch check doctor drivers schema migrate witness serve bench $common"
        ;;
    run)
        words="--shared --permits --nonblock --wait --ttl --grace --on-loss --hide-config --conflict-exit-code --command $common --"
        [[ $word == -* ]] || words+=" $(_mortise_names "$word")"
        ;;
    status) words="--json $common $(_mortise_names "$word")" ;;
    list) words="--json --prometheus $common $(_mortise_names "$word")" ;;
    watch) words="--json --interval $common $(_mortise_names "$word")" ;;
    break) words="--token $common $(_mortise_names "$word")" ;;
    check | doctor) words="--json $common" ;;
    drivers) words="--json --options $common $(_mortise_modules)" ;;
    witness) words="--socket $common" ;;
    serve) words="--listen --token-file --interval $common $(_mortise_names "$word")" ;;
    schema) words="$common $(_mortise_modules)" ;;
    migrate) words="status plan advance --back --wait --nonblock --section --json $common" ;;
    esac
    [[ $word == -* ]] || words=$(printf '%s\n' $words | grep -v '^-')
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

_mortise() {
    local line at breaks kept=''
    COMPREPLY=()
    _mortise_split
    local word=${line[${#line[@]} - 1]}
    _mortise_offer "$word" "${line[${#line[@]} - 2]}"
    # The part before the last break stays in the line, and must not be inserted again.
    [ -z "$breaks" ] || kept=${word%"${word##*["$breaks"]}"}
    [ -z "$kept" ] || COMPREPLY=("${COMPREPLY[@]#"$kept"}")
}
complete -F _mortise mortise
