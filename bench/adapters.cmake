# mortise-bench: what it is made of, and where that lies: the command in the command folder, all else in one folder
# beside it, in the build tree as where it is installed.
set(bench_parts "${PROJECT_BINARY_DIR}/bench")

add_library(bench_adapter_common STATIC adapter/adapter.c)
target_link_libraries(bench_adapter_common PUBLIC bench_common)

# bench_part(TARGET): a program of mortise-bench's own, under the name TARGET.
function(bench_part TARGET)
    set_target_properties(${TARGET} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${bench_parts}")
endfunction()

# bench_adapter(NAME [SOURCES …] [LIBRARIES …]): adapter/NAME.c, as the program adapter-NAME.
function(bench_adapter NAME)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
    add_executable(adapter-${NAME} "adapter/${NAME}.c" ${arg_SOURCES})
    target_link_libraries(adapter-${NAME} PRIVATE bench_adapter_common ${arg_LIBRARIES})
    bench_part(adapter-${NAME})
endfunction()

bench_adapter(mortise)
add_executable(mortise-bench-digest adapter/digest.c adapter/histogram.c)
bench_part(mortise-bench-digest)
