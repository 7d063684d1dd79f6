# How every C file of the project is compiled (and the few C++ files of the tests): the language, the warnings,
# the sanitizers.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# The version is that of the library, the command and all modules.
add_compile_definitions(_GNU_SOURCE "MORTISE_VERSION_TEXT=\"${PROJECT_VERSION}\"")
# Asserts stay, whatever the build type and the packager's flags say (CMake's all have -DNDEBUG, but Debug): a broken promise
# inside a lock should end the program, not the exclusion.
add_compile_options(-UNDEBUG)
add_compile_options(
    -Wall -Wextra -Wshadow -Wpointer-arith -Wcast-qual -Wwrite-strings -Wundef -Wformat=2 -Wvla
    "$<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes;-Wmissing-prototypes>")
# snprintf is used because it cuts; and what gcc finds changes with every optimisation and sanitizer.
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-format-truncation)
endif()
if(MORTISE_WERROR)
    add_compile_options(-Werror)
endif()

# As Debian builds its packages: all symbols are bound at the start, and the tables that say where are read-only then.
if(NOT MORTISE_SANITIZE)
    add_link_options("$<$<CONFIG:Release,RelWithDebInfo>:-Wl,-z,relro,-z,now>")
    add_compile_options("$<$<CONFIG:Release,RelWithDebInfo>:-fstack-protector-strong>")
    if(NOT CMAKE_C_FLAGS MATCHES "_FORTIFY_SOURCE") # a packager may want 3
        add_compile_options("$<$<CONFIG:Release,RelWithDebInfo>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
    endif()
endif()

if(MORTISE_SANITIZE)
    # A finding of any of them must fail a test, so none may be recovered from.
    add_compile_options(
        "-fsanitize=${MORTISE_SANITIZE}" -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_link_options("-fsanitize=${MORTISE_SANITIZE}")
    set(MORTISE_NO_UNDEFINED "") # the sanitizers' runtime is not linked to shared objects
else()
    set(MORTISE_NO_UNDEFINED "-Wl,--no-undefined")
endif()
