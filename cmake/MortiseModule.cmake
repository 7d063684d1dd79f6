# How a driver, plugin, observer or test module becomes a shared object, and whether it is built.

# mortise_module(NAME KIND driver|plugin|observer|test SOURCES … [LIBRARIES …] [ALIASES …])
#
# Makes the target module_NAME: NAME.so, without the prefix "lib", which exports what driver.h marks and
# nothing else. It lands in lib/mortise/ of the build tree, where the libmortise.so beside that folder
# finds it, and is installed to the libdir's mortise/. ALIASES are further names that it is found by (the
# other schemes of its URLs): relative links to it. KIND test: lands in tests/modules/, not installed.
function(mortise_module NAME)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "KIND" "SOURCES;LIBRARIES;ALIASES")
    if(NOT arg_KIND MATCHES "^(driver|plugin|observer|test)$" OR NOT arg_SOURCES OR arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "mortise_module(${NAME}): needs KIND driver, plugin, observer or test, and "
                            "SOURCES; not understood: \"${arg_UNPARSED_ARGUMENTS}\"")
    endif()

    set(folder "${MORTISE_BUILT_MODULES}")
    if(arg_KIND STREQUAL "test")
        set(folder "${PROJECT_BINARY_DIR}/tests/modules")
    endif()

    mortise_shared_object(module_${NAME} OUTPUT ${NAME} FOLDER "${folder}" SOURCES ${arg_SOURCES}
                          LIBRARIES ${arg_LIBRARIES})
    # Complete at build time: dlopen with RTLD_NOW would refuse it on the user's machine otherwise.
    target_link_options(module_${NAME} PRIVATE ${MORTISE_NO_UNDEFINED})
    foreach(alias IN LISTS arg_ALIASES)
        add_custom_command(TARGET module_${NAME} POST_BUILD
            COMMAND ${CMAKE_COMMAND} -E create_symlink ${NAME}.so "${folder}/${alias}.so" VERBATIM)
    endforeach()
    if(arg_KIND STREQUAL "test")
        return()
    endif()

    set_property(GLOBAL APPEND PROPERTY MORTISE_MODULE_TARGETS module_${NAME})
    set(component plugins)
    if(arg_KIND STREQUAL "driver")
        set(component "driver_${NAME}")
        set_property(GLOBAL APPEND PROPERTY MORTISE_DRIVERS_BUILT "${NAME}")
    endif()
    install(TARGETS module_${NAME} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/mortise" COMPONENT ${component})
    foreach(alias IN LISTS arg_ALIASES)
        install(FILES "${folder}/${alias}.so" DESTINATION "${CMAKE_INSTALL_LIBDIR}/mortise" COMPONENT ${component})
    endforeach()
    message(STATUS "${arg_KIND} ${NAME}: built")
endfunction()

# mortise_shared_object(TARGET OUTPUT name FOLDER folder SOURCES … [LIBRARIES …]): FOLDER/name.so, for
# dlopen. Sees include/ and its own folder, never core/.
function(mortise_shared_object TARGET)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "OUTPUT;FOLDER" "SOURCES;LIBRARIES")
    add_library(${TARGET} MODULE ${arg_SOURCES})
    target_include_directories(${TARGET} PRIVATE "${PROJECT_SOURCE_DIR}/include")
    target_link_libraries(${TARGET} PRIVATE ${arg_LIBRARIES})
    set_target_properties(${TARGET} PROPERTIES
        PREFIX "" SUFFIX ".so" OUTPUT_NAME "${arg_OUTPUT}" BUILD_RPATH "$ORIGIN/.."
        LIBRARY_OUTPUT_DIRECTORY "${arg_FOLDER}")
endfunction()

# mortise_backend(NAME PKGCONFIG module APT package FOUND variable)
#
# For drivers/NAME/CMakeLists.txt: sets variable to whether driver NAME is to be built and its library is
# here (then as PkgConfig::NAME). One that is not here leaves the driver out, with a message that says what
# to install; where the driver was asked for by name, that is an error.
function(mortise_backend NAME)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "PKGCONFIG;APT;FOUND" "")
    set(${arg_FOUND} FALSE PARENT_SCOPE)
    if(NOT MORTISE_DRIVERS STREQUAL "auto" AND NOT NAME IN_LIST MORTISE_DRIVERS)
        message(STATUS "driver ${NAME}: left out, MORTISE_DRIVERS does not name it")
        return()
    endif()

    pkg_check_modules(${NAME} QUIET IMPORTED_TARGET ${arg_PKGCONFIG})
    if(${NAME}_FOUND)
        set(${arg_FOUND} TRUE PARENT_SCOPE)
        return()
    endif()
    set(why "${arg_PKGCONFIG} was not found (apt-get install ${arg_APT})")
    if(MORTISE_REQUIRE_ALL OR NOT MORTISE_DRIVERS STREQUAL "auto")
        message(FATAL_ERROR "driver ${NAME}: asked for, but ${why}")
    endif()
    message(STATUS "driver ${NAME}: left out, ${why}")
endfunction()

# mortise_add_modules(LISTED …): enters each folder below this one that has a CMakeLists.txt. The names
# in LISTED must be among them.
function(mortise_add_modules)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "LISTED")
    file(GLOB files RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" CONFIGURE_DEPENDS
         "${CMAKE_CURRENT_SOURCE_DIR}/*/CMakeLists.txt")
    list(TRANSFORM files REPLACE "/CMakeLists.txt$" "" OUTPUT_VARIABLE folders)
    foreach(name IN LISTS arg_LISTED)
        if(NOT name IN_LIST folders)
            message(FATAL_ERROR "driver ${name}: asked for, but there is none; there are: ${folders}")
        endif()
    endforeach()
    foreach(folder IN LISTS folders)
        add_subdirectory(${folder})
    endforeach()
endfunction()
