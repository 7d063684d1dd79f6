# finish.cmake - run by cpack over the files of all packages, before they are packed: what a system's package must not
# have (a search path of its own for libraries), where systemd finds the command, and how Debian wants documents
# (compressed, the same in every build).
#
# First it looks for what cpack needs: without `file` it fails late and says little, and without dpkg-shlibdeps it makes
# packages that do not name the libraries which they need.
# From .rpm files it removes what Debian alone has; rpmbuild does the rest.
file(GLOB_RECURSE units "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*.service")
foreach(unit IN LISTS units)
    file(READ "${unit}" text)
    string(REGEX REPLACE "\nExecStart=[^\n]*/mortise " "\nExecStart=${CPACK_PACKAGING_INSTALL_PREFIX}/${CPACK_MORTISE_BINDIR}/mortise " text "${text}")
    file(WRITE "${unit}" "${text}")
endforeach()

if(CPACK_GENERATOR STREQUAL "RPM")
    file(GLOB_RECURSE files LIST_DIRECTORIES true "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*")
    foreach(file IN LISTS files)
        if(file MATCHES "/changelog.Debian$|/share/lintian$")
            file(REMOVE_RECURSE "${file}")
        elseif(file MATCHES "/bin/[^/]+$|/libexec/mortise/[^/]+$" AND NOT IS_SYMLINK "${file}" AND NOT IS_DIRECTORY "${file}")
            file(RPATH_REMOVE FILE "${file}")
        endif()
    endforeach()
    return()
endif()

find_program(MORTISE_FILE_PROGRAM file)
find_program(MORTISE_SHLIBDEPS_PROGRAM dpkg-shlibdeps)
if(NOT MORTISE_FILE_PROGRAM OR NOT MORTISE_SHLIBDEPS_PROGRAM)
    message(FATAL_ERROR "cpack needs the programs file and dpkg-shlibdeps: sudo apt-get install file dpkg-dev")
endif()

file(GLOB_RECURSE files LIST_DIRECTORIES false "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*")
foreach(file IN LISTS files)
    if(IS_SYMLINK "${file}")
        continue()
    elseif(file MATCHES "/bin/[^/]+$|/libexec/mortise/[^/]+$")
        file(RPATH_REMOVE FILE "${file}")
    elseif(file MATCHES "/share/man/|/changelog.Debian$")
        execute_process(COMMAND gzip -9 -n "${file}" COMMAND_ERROR_IS_FATAL ANY)
    elseif(file MATCHES "^(.*/share/doc/[^/]+)/CHANGELOG.md$") # by the name at which Debian has it
        file(RENAME "${file}" "${CMAKE_MATCH_1}/changelog")
        execute_process(COMMAND gzip -9 -n "${CMAKE_MATCH_1}/changelog" COMMAND_ERROR_IS_FATAL ANY)
    elseif(file MATCHES "\\.so(\\.[0-9.]+)?$")
        file(CHMOD "${file}" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ) # no program
    endif()
endforeach()
