# finish.cmake - run by cpack over the files of all packages, before they are packed: what a system's package must not
# have (a search path of its own for libraries), and how Debian wants documents (compressed, the same in every build).
file(GLOB_RECURSE files LIST_DIRECTORIES false "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*")
foreach(file IN LISTS files)
    if(IS_SYMLINK "${file}")
        continue()
    elseif(file MATCHES "/bin/[^/]+$|/libexec/mortise/[^/]+$")
        file(RPATH_REMOVE FILE "${file}")
    elseif(file MATCHES "/share/man/|/changelog.Debian$")
        execute_process(COMMAND gzip -9 -n "${file}" COMMAND_ERROR_IS_FATAL ANY)
    elseif(file MATCHES "\\.so(\\.[0-9.]+)?$")
        file(CHMOD "${file}" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ) # no program
    endif()
endforeach()
