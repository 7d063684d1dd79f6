# mortise-bench: its parts, and their places: the command is in the command folder, everything else in one folder
# beside it, both in the build tree and when installed.
set(bench_parts "${PROJECT_BINARY_DIR}/bench")
set(bench_installed "${CMAKE_INSTALL_FULL_LIBEXECDIR}/mortise-bench")
file(RELATIVE_PATH bench_to_lib "${bench_installed}" "${CMAKE_INSTALL_FULL_LIBDIR}")

add_library(bench_adapter_common STATIC adapter/adapter.c)
target_link_libraries(bench_adapter_common PUBLIC bench_common)

# bench_part(TARGET): a program of mortise-bench's own, under the name TARGET.
function(bench_part TARGET)
    set_target_properties(${TARGET} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY "${bench_parts}" INSTALL_RPATH "$ORIGIN/${bench_to_lib}")
    install(TARGETS ${TARGET} RUNTIME DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/mortise-bench" COMPONENT bench)
endfunction()

# bench_adapter(NAME [SOURCES …] [LIBRARIES …]): adapter/NAME.c, as the program adapter-NAME.
function(bench_adapter NAME)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
    add_executable(adapter-${NAME} "adapter/${NAME}.c" ${arg_SOURCES})
    target_link_libraries(adapter-${NAME} PRIVATE bench_adapter_common ${arg_LIBRARIES})
    bench_part(adapter-${NAME})
endfunction()

bench_adapter(mortise SOURCES adapter/scale.c)
bench_adapter(flock)
add_executable(mortise-bench-digest adapter/digest.c adapter/histogram.c)
bench_part(mortise-bench-digest)

# bench_command(OUTPUT FROM programs package servers rivals): the command, which finds these by their paths
# relative to the folder FROM, so that a prefix can be moved.
function(bench_command OUTPUT FROM)
    foreach(what IN ITEMS programs package servers rivals)
        list(POP_FRONT ARGN path)
        file(RELATIVE_PATH bench_${what} "${FROM}" "${path}")
    endforeach()
    configure_file(mortise-bench.in "${OUTPUT}" @ONLY FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
                   GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
endfunction()
bench_command("${MORTISE_COMMAND_DIR}/mortise-bench" "${MORTISE_COMMAND_DIR}" "${bench_parts}"
    "${CMAKE_CURRENT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/tests/servers.sh" "${CMAKE_CURRENT_SOURCE_DIR}/rivals")
bench_command("${bench_parts}/installed/mortise-bench" "${CMAKE_INSTALL_FULL_BINDIR}" "${bench_installed}"
    "${bench_installed}" "${bench_installed}/servers.sh" "${bench_installed}/rivals")

install(PROGRAMS "${bench_parts}/installed/mortise-bench" DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT bench)
install(PROGRAMS check DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/mortise-bench" COMPONENT bench)
install(DIRECTORY mortise_bench rivals DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/mortise-bench" COMPONENT bench
        PATTERN __pycache__ EXCLUDE PATTERN install.sh EXCLUDE)
install(PROGRAMS rivals/install.sh DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/mortise-bench/rivals" COMPONENT bench)
install(PROGRAMS "${PROJECT_SOURCE_DIR}/tests/servers.sh"
        DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/mortise-bench" COMPONENT bench)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/tests/servers"
        DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/mortise-bench" COMPONENT bench
        PATTERN "test_*" EXCLUDE PATTERN CMakeLists.txt EXCLUDE)

# The rivals in C++ that can be found (bench/rivals/install.sh installs them; CMAKE_PREFIX_PATH says where).
find_path(REDIS_PLUS_PLUS_INCLUDE sw/redis++/redis++.h PATHS "$ENV{HOME}/.local/share/mortise-bench/rivals/prefix/include")
find_library(REDIS_PLUS_PLUS_LIBRARY redis++ PATHS "$ENV{HOME}/.local/share/mortise-bench/rivals/prefix/lib")
mark_as_advanced(REDIS_PLUS_PLUS_INCLUDE REDIS_PLUS_PLUS_LIBRARY)
include(CheckLanguage)
check_language(CXX)
if(REDIS_PLUS_PLUS_INCLUDE AND REDIS_PLUS_PLUS_LIBRARY AND CMAKE_CXX_COMPILER)
    enable_language(CXX)
    pkg_check_modules(bench_hiredis QUIET IMPORTED_TARGET hiredis)
    add_executable(adapter-redis_plus_plus adapter/redis_plus_plus.cpp)
    set_target_properties(adapter-redis_plus_plus PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON)
    target_include_directories(adapter-redis_plus_plus SYSTEM PRIVATE "${REDIS_PLUS_PLUS_INCLUDE}")
    target_link_libraries(adapter-redis_plus_plus PRIVATE bench_adapter_common "${REDIS_PLUS_PLUS_LIBRARY}" PkgConfig::bench_hiredis)
    bench_part(adapter-redis_plus_plus)
endif()
