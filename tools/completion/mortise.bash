# bash completion for mortise(1)

# Names of locks that are held, as they can be typed: those without blanks, quotes or escapes.
_mortise_names() {
    local config=() i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        -C | --config) config=(-C "${COMP_WORDS[i + 1]}") ;;
        esac
    done
    timeout 2 "${COMP_WORDS[0]}" "${config[@]}" list "$1" 2>/dev/null | cut -f 1 |
        grep -v '[][ \\"'\''$`*?(){}<>|&;!]'
}

# The token of the lock that is named in the line, by `status`: the user has seen who holds it, or will.
_mortise_token() {
    local config=() name='' i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        -C | --config)
            config=(-C "${COMP_WORDS[i + 1]}")
            i=$((i + 1))
            ;;
        -* | break) ;;
        *) name=${COMP_WORDS[i]} ;;
        esac
    done
    [ -n "$name" ] || return
    timeout 2 "${COMP_WORDS[0]}" "${config[@]}" status --json -- "$name" 2>/dev/null |
        sed -n 's/.*"token":"\{0,1\}\([1-9][0-9]*\).*/\1/p'
}

_mortise_modules() {
    timeout 2 "${COMP_WORDS[0]}" drivers 2>/dev/null | cut -f 1
}

_mortise() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local command='' names=0 i
    local common='--config --help --version'
    COMPREPLY=()

    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --) # from here on it is another command's line
            if declare -F _command_offset >/dev/null; then
                _command_offset $((i + 1))
            else
                mapfile -t COMPREPLY < <(compgen -c -- "$word")
            fi
            return
            ;;
        -C | --config | -w | --wait | -E | --conflict-exit-code | --ttl | --grace | --on-loss | \
            --token | --interval | --section | --permits | --socket | --listen | --token-file) i=$((i + 1)) ;;
        -*) ;;
        *) if [ -z "$command" ]; then command=${COMP_WORDS[i]}; else names=$((names + 1)); fi ;;
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
    -w | --wait)
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
complete -F _mortise mortise
