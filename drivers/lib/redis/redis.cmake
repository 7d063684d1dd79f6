# What the builds of the drivers that speak Redis have in common.

# Scripts as C: their text without comments, and its SHA-1, by which the server knows them. Reads scripts/*.lua of the
# folder that includes this file. The line "-- include NAME" is replaced by scripts/include/NAME.lua of that folder or of
# this one.
file(GLOB scripts CONFIGURE_DEPENDS scripts/*.lua)
file(GLOB parts CONFIGURE_DEPENDS scripts/include/*.lua "${CMAKE_CURRENT_LIST_DIR}/scripts/include/*.lua")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${parts})
set(rows "")
set(names "")
foreach(script IN LISTS scripts)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${script}")
    get_filename_component(name "${script}" NAME_WE)
    file(READ "${script}" text)
    string(REGEX MATCHALL "-- include [a-z_]+\n" includes "${text}")
    foreach(include IN LISTS includes)
        string(REGEX REPLACE "-- include ([a-z_]+)\n" "\\1" part "${include}")
        set(place "${CMAKE_CURRENT_SOURCE_DIR}/scripts/include/${part}.lua")
        if(NOT EXISTS "${place}")
            set(place "${CMAKE_CURRENT_LIST_DIR}/scripts/include/${part}.lua")
        endif()
        file(READ "${place}" part)
        string(REPLACE "${include}" "${part}" text "${text}")
    endforeach()
    string(REGEX REPLACE "(^|\n)[ \t]*--[^\n]*" "\\1" text "${text}")
    string(REGEX REPLACE "\n[ \t\n]+" "\n" text "${text}")
    string(STRIP "${text}" text)
    string(SHA1 sha "${text}")
    string(LENGTH "${text}" length)
    string(REPLACE "\\" "\\\\" text "${text}")
    string(REPLACE "\"" "\\\"" text "${text}")
    string(REPLACE "\n" "\\n\"\n        \"" text "${text}")
    string(TOUPPER "${name}" constant)
    string(APPEND names "    SCRIPT_${constant},\n")
    string(APPEND rows "    [SCRIPT_${constant}] = {\"${name}\", \"$7\\r\\nEVALSHA\\r\\n$40\\r\\n${sha}\\r\\n\", ${length},\n        \"${text}\"},\n")
endforeach()
file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/scripts.h" CONTENT
"/* Made from the files in scripts. */
enum script {
@names@    SCRIPT_COUNT
};
" @ONLY)
file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/scripts.inc" CONTENT "@rows@" @ONLY)


# mortise_redis_module(NAME): the module finds its scripts, and has TLS if hiredis 1.0 brings a library for
# it.
function(mortise_redis_module NAME)
    target_include_directories(module_${NAME} PRIVATE "${CMAKE_CURRENT_BINARY_DIR}")
    pkg_check_modules(hiredis_ssl QUIET IMPORTED_TARGET hiredis_ssl)
    find_package(OpenSSL QUIET)
    if(hiredis_ssl_FOUND AND OPENSSL_FOUND)
        target_compile_definitions(module_${NAME} PRIVATE MORTISE_REDIS_TLS)
        target_link_libraries(module_${NAME} PRIVATE PkgConfig::hiredis_ssl OpenSSL::SSL)
    endif()
endfunction()
