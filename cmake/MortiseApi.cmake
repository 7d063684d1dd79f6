# The reference of the public headers as HTML, BUILD/api/html: `cmake --build BUILD -t api`, and with
# -DMORTISE_API=ON the package libmortise-doc. tests/docs/api.py says which warnings of doxygen are mistakes.
if(NOT PROJECT_IS_TOP_LEVEL)
    return()
endif()
find_program(MORTISE_DOXYGEN doxygen)
if(NOT MORTISE_DOXYGEN)
    message(STATUS "reference of the headers (target api): left out, doxygen was not found (apt-get install doxygen)")
    return()
endif()
configure_file("${PROJECT_SOURCE_DIR}/docs/api/Doxyfile.in" "${PROJECT_BINARY_DIR}/api/Doxyfile" @ONLY)
file(GLOB MORTISE_PUBLIC_HEADERS "${PROJECT_SOURCE_DIR}/include/mortise/*.h")
add_custom_command(OUTPUT "${PROJECT_BINARY_DIR}/api/html/index.html"
    COMMAND "${MORTISE_DOXYGEN}" "${PROJECT_BINARY_DIR}/api/Doxyfile"
    DEPENDS ${MORTISE_PUBLIC_HEADERS} "${PROJECT_SOURCE_DIR}/docs/api/filter.py" "${PROJECT_BINARY_DIR}/api/Doxyfile"
    COMMENT "Reference of the public headers: ${PROJECT_BINARY_DIR}/api/html/index.html" VERBATIM)
add_custom_target(api DEPENDS "${PROJECT_BINARY_DIR}/api/html/index.html")
option(MORTISE_API "Make the reference of the headers with each build, and its package" OFF)
if(MORTISE_API)
    set_target_properties(api PROPERTIES EXCLUDE_FROM_ALL OFF)
    install(DIRECTORY "${PROJECT_BINARY_DIR}/api/html" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/libmortise-doc" COMPONENT doc)
endif()
