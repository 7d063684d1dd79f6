# unit.cmake - run by `cmake --install`: a systemd unit starts the command of the prefix that it is installed in. For packages
# packaging/debian/finish.cmake does the same, because cpack installs into a folder of its own.

# UNIT: below the prefix. BINDIR: where the command is, below the prefix or absolute. A function, because the installing script
# would take its variables for the components of the same names.
function(mortise_write_unit UNIT BINDIR)
    get_filename_component(prefix "${CMAKE_INSTALL_PREFIX}" ABSOLUTE)
    get_filename_component(bindir "${BINDIR}" ABSOLUTE BASE_DIR "${prefix}")
    string(REPLACE "%" "%%" program "${bindir}/mortise")
    if(program MATCHES "[ \t]")
        set(program "\"${program}\"")
    endif()
    set(installed "$ENV{DESTDIR}${prefix}/${UNIT}")
    file(READ "${installed}" text)
    string(REGEX REPLACE "\nExecStart=[^\n]*/mortise " "\nExecStart=${program} " text "${text}")
    file(WRITE "${installed}" "${text}")
endfunction()
