# The module "gullible": the etcd driver, but for what is changed here. Each change must still find what it replaces.
set(folder "${PROJECT_SOURCE_DIR}/drivers/etcd")
set(gullible_folder "${CMAKE_CURRENT_BINARY_DIR}/gullible")
file(MAKE_DIRECTORY "${gullible_folder}")

# gullible_copy(FILE FROM TO …)
function(gullible_copy FILE)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${folder}/${FILE}")
    file(READ "${folder}/${FILE}" text)
    set(i 1)
    while(i LESS ARGC) # ARGN would be split where the code has a semicolon
        math(EXPR next "${i} + 1")
        set(from "${ARGV${i}}")
        string(FIND "${text}" "${from}" at)
        if(at EQUAL -1)
            message(FATAL_ERROR "gullible.cmake: drivers/etcd/${FILE} does not contain \"${from}\"")
        endif()
        string(REPLACE "${from}" "${ARGV${next}}" text "${text}")
        math(EXPR i "${i} + 2")
    endwhile()
    file(CONFIGURE OUTPUT "${gullible_folder}/${FILE}" CONTENT "${text}" @ONLY)
endfunction()

gullible_copy(module.c ".name = \"etcd\"" ".name = \"gullible\"")
# The term changes, and the session stays; the answer to a keep-alive is all that it needs.
gullible_copy(session.c
    "term > session->term" "term == 0 /* never: the mistake */"
    "    read_key(driver, session);\n}\n\nstatic void beat"
    "    if (counts)\n        prove(driver, session, call->sent_ns, ttl_s * 1000 * NS_PER_MS);\n    read_key(driver, session);\n}\n\nstatic void beat"
    "session->asked_term != session->term) { /*" "session->asked_term == 0) { /*")
mortise_objects(others module_etcd EXCLUDE "module|session")
pkg_check_modules(gullible REQUIRED QUIET IMPORTED_TARGET libnghttp2 openssl)
mortise_module(gullible KIND test LIBRARIES PkgConfig::gullible
    SOURCES ${others} "${gullible_folder}/module.c" "${gullible_folder}/session.c")
target_include_directories(module_gullible PRIVATE "${folder}")
