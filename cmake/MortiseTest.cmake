# How a test is entered in ctest: one place for labels, time limits, skips and a clean environment.

# Sanitized programs are slower; a time limit only bounds failure, so it may be generous.
set(time_factor 1)
if(MORTISE_SANITIZE)
    set(time_factor 4)
endif()

# Nothing of the person who runs the tests (a config, modules, a namespace) may reach them.
set(MORTISE_TEST_HOME "${PROJECT_BINARY_DIR}/tests/home")
file(MAKE_DIRECTORY "${MORTISE_TEST_HOME}")

set(MORTISE_TEST_MODULES "${PROJECT_BINARY_DIR}/tests/modules")
set(MORTISE_TEST_FIXTURES "${PROJECT_BINARY_DIR}/tests/fixtures")

# The order: the longest begin first (these), and tests that compute (BUSY), one at a time; then the other long ones, a minute and
# half a minute; then the rest of the families that start servers or processes. The short ones
# are left for the end, so that no processor waits for one long test.
set(MORTISE_LONG_TESTS migration.drill-faults migration.drill zookeeper.states zookeeper.nodes faults.postgres
    conformance.postgres-pgbouncer conformance.migrate-redis-zookeeper-both conformance.migrate-sqlite-postgres-both)
set(MORTISE_LONG_WAITS conformance.zookeeper.1 conformance.zookeeper.2 conformance.zookeeper.3 conformance.zookeeper.4 conformance.etcd.1 conformance.etcd.2
    conformance.mysql.1 conformance.mysql.2 conformance.postgres.1 conformance.postgres.2 conformance.postgres-pooler
    conformance.redlock conformance.redlock-plain conformance.chaos-sqlite conformance.chaos-redis
    conformance.migrate-sqlite-sqlite-old
    conformance.migrate-sqlite-sqlite-new conformance.redis-cluster conformance.trace-sqlite faults.postgres_rows
    faults.postgres_stops faults.mysql faults.mysql_settings zookeeper.sessions zookeeper.rests zookeeper.cuts
    zookeeper.follower zookeeper.ensemble zookeeper.interop etcd.leases etcd.calls cluster.failover cluster.masters cluster.resharding
    cluster.slots redis.sentinel redlock.shared faults.postgres_failover faults.postgres_shared faults.postgres_links
    faults.postgres_ways command.run_end command.run_loss command.run_unanswered command.migrate_refusals interop.rights torture.redis-power
    torture.redlock-clock torture.migrate torture.migrate-old torture.migrate-new torture.mysql torture.zookeeper
    plugins.migrate plugins.migrate_crowd plugins.migrate_floor plugins.trace_trouble python.suite docs.commands docs.tutorial
    serve.http serve.page unit.stuck unit.zookeeper_states unit.zookeeper_tokens bench.once install)
set(MORTISE_LONG_FAMILIES conformance redis redlock zookeeper etcd faults interop hostile torture witness command servers bench)

# mortise_test(NAME LABEL family COMMAND … [TIER fast|nightly] [SANITIZERS all|address|none]
#              [NIGHTLY_SANITIZERS address|thread …] [BUSY] [SERIAL] [TIMEOUT seconds] [ENVIRONMENT VAR=text …])
#
# LABEL: the family of the test, for `ctest -L`. TIER fast: also part of `tests/run.sh --fast`. TIER nightly: only part of
# `tests/run.sh --nightly`. SANITIZERS (default: all): "address" if there is nothing in the test for ThreadSanitizer, "none"
# if a sanitizer can find nothing new in it. NIGHTLY_SANITIZERS: those of them that run the test only at night, because
# other tests take the same paths with the same threads. BUSY: the test computes rather than waits: one of its kind runs at a time, and
# nine that wait beside it on two processors; without it twelve. SERIAL: the test runs alone.
# Exit code 77 is a skip; with MORTISE_REQUIRE_ALL it is a failure.
# Every test finds the command in its PATH, and in its environment MORTISE_COMMAND (the command's file),
# MORTISE_SOURCE_DIR, MORTISE_BUILD_DIR and MORTISE_MODULE_PATH: the built modules and the test modules.
function(mortise_test NAME)
    cmake_parse_arguments(PARSE_ARGV 1 arg "BUSY;SERIAL" "LABEL;TIER;SANITIZERS;TIMEOUT"
                          "COMMAND;ENVIRONMENT;NIGHTLY_SANITIZERS")
    if(NOT arg_LABEL OR NOT arg_COMMAND OR arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "mortise_test(${NAME}): needs LABEL and COMMAND; not understood: "
                            "\"${arg_UNPARSED_ARGUMENTS}\"")
    endif()
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 120)
    endif()
    if(NOT arg_SANITIZERS)
        set(arg_SANITIZERS all)
    endif()
    set(labels ${arg_LABEL} ${arg_TIER})
    if(arg_SANITIZERS STREQUAL "all")
        set(arg_SANITIZERS address thread)
    elseif(arg_SANITIZERS STREQUAL "none")
        set(arg_SANITIZERS "")
    endif()
    foreach(sanitizer IN LISTS arg_SANITIZERS)
        if(sanitizer IN_LIST arg_NIGHTLY_SANITIZERS)
            set(sanitizer ${sanitizer}nightly)
        endif()
        list(APPEND labels ${sanitizer})
    endforeach()
    # The plain stage of .ci/run leaves these out: the same program with the same assertions runs under AddressSanitizer in the
    # same run. Not so what does less there: it measures memory, unloads modules, hides /proc, has fewer rounds or smaller crowds.
    # Conformance has smaller crowds there, but sqlite, redis and redlock have large ones in the plain stage.
    if("address" IN_LIST labels AND NOT arg_TIER STREQUAL "nightly"
       AND (arg_LABEL MATCHES "^(unit|redis|redlock|zookeeper|etcd|faults|witness|command|example)$"
            OR NAME MATCHES "^conformance\\.(zookeeper|etcd|postgres|mysql)\\.[0-9]$")
       AND NOT NAME MATCHES "^(unit\\.(sim|hostile_texts|threads|loader)|fuzz\\..*)$"
       AND NOT NAME MATCHES "^(redis\\.lost|witness\\.bad_input|command\\.run_group)$")
        list(APPEND labels sanitized)
    endif()
    foreach(label IN LISTS labels)
        if(NOT label MATCHES "^[a-z]+$")
            message(FATAL_ERROR "mortise_test(${NAME}): \"${label}\" is no label: one word; see TIER and SANITIZERS")
        endif()
    endforeach()
    set(processors 1)
    if(arg_BUSY)
        set(processors 3) # of the six slots that tests/run.sh gives each processor
    endif()
    math(EXPR timeout "${arg_TIMEOUT} * ${time_factor}")

    add_test(NAME "${NAME}" COMMAND ${arg_COMMAND})
    set_tests_properties("${NAME}" PROPERTIES
        LABELS "${labels}" TIMEOUT ${timeout} RUN_SERIAL "${arg_SERIAL}" PROCESSORS ${processors}
        ENVIRONMENT "${MORTISE_TEST_ENVIRONMENT};${arg_ENVIRONMENT}"
        ENVIRONMENT_MODIFICATION "PATH=path_list_prepend:${MORTISE_COMMAND_DIR};MORTISE_CONFIG=unset:")
    if(arg_BUSY)
        set_tests_properties("${NAME}" PROPERTIES RESOURCE_LOCK computing)
    endif()
    if(arg_BUSY OR NAME IN_LIST MORTISE_LONG_TESTS)
        set_tests_properties("${NAME}" PROPERTIES COST 100)
    elseif(NAME IN_LIST MORTISE_LONG_WAITS)
        set_tests_properties("${NAME}" PROPERTIES COST 90)
    elseif(arg_LABEL IN_LIST MORTISE_LONG_FAMILIES)
        set_tests_properties("${NAME}" PROPERTIES COST 50)
    endif()
    if(NOT MORTISE_REQUIRE_ALL)
        set_tests_properties("${NAME}" PROPERTIES SKIP_RETURN_CODE 77)
    endif()
endfunction()

set(MORTISE_TEST_ENVIRONMENT
    "HOME=${MORTISE_TEST_HOME}"
    "XDG_CONFIG_HOME=${MORTISE_TEST_HOME}"
    "MORTISE_COMMAND=${MORTISE_COMMAND_DIR}/mortise"
    "MORTISE_SOURCE_DIR=${PROJECT_SOURCE_DIR}"
    "MORTISE_BUILD_DIR=${PROJECT_BINARY_DIR}"
    "MORTISE_MODULE_PATH=${MORTISE_BUILT_MODULES}:${MORTISE_TEST_MODULES}"
    "ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1"
    "LSAN_OPTIONS=print_suppressions=0:suppressions=${PROJECT_SOURCE_DIR}/tests/lsan.supp"
    "UBSAN_OPTIONS=print_stacktrace=1"
    "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp")
if(MORTISE_REQUIRE_ALL)
    list(APPEND MORTISE_TEST_ENVIRONMENT "MORTISE_REQUIRE_ALL=1")
endif()

# mortise_objects(VARIABLE TARGET INCLUDE|EXCLUDE regex): sets VARIABLE to those objects of TARGET, a module or a program, whose source
# file matches /regex.c: a test has them from there, so that they are compiled once.
function(mortise_objects VARIABLE TARGET WHICH REGEX)
    set(${VARIABLE} "$<FILTER:$<TARGET_OBJECTS:${TARGET}>,${WHICH},/(${REGEX})[.]c[.]o$>" PARENT_SCOPE)
endfunction()

# mortise_left_out(what why): a part of the tests that cannot be built here.
function(mortise_left_out what why)
    if(MORTISE_REQUIRE_ALL)
        message(FATAL_ERROR "${what}: ${why}")
    endif()
    message(STATUS "${what}: left out, ${why}")
endfunction()
