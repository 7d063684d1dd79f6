# What `cmake --install` puts where. Modules install themselves (MortiseModule.cmake). The components are the
# packages of MortisePackages.cmake; without --component all of them are installed.
include(CMakePackageConfigHelpers)

# The command finds the library by its place relative to it, so that a prefix can be moved.
file(RELATIVE_PATH bin_to_lib "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
set_target_properties(mortise PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")

install(TARGETS libmortise EXPORT MortiseTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        COMPONENT library NAMELINK_COMPONENT dev)
install(TARGETS mortise RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT command)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/mortise" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT dev
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
set(man_dir "${PROJECT_SOURCE_DIR}/docs/man")
install(FILES "${man_dir}/mortise.1" "${man_dir}/mortise-run.1" "${man_dir}/mortise-witness.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1"
        COMPONENT command)
if(TARGET mortise-serve)
    set_target_properties(mortise-serve PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
    install(TARGETS mortise-serve RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT serve)
    install(FILES "${man_dir}/mortise-serve.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT serve)
endif()
install(FILES "${man_dir}/libmortise.3" DESTINATION "${CMAKE_INSTALL_MANDIR}/man3" COMPONENT dev)
install(FILES "${man_dir}/mortise.conf.5" DESTINATION "${CMAKE_INSTALL_MANDIR}/man5" COMPONENT command)
if(TARGET conformance)
    install(FILES "${man_dir}/mortise-conformance.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1"
            COMPONENT conformance)
endif()
if(TARGET adapter-mortise)
    install(FILES "${man_dir}/mortise-bench.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT bench)
endif()
install(FILES "${PROJECT_SOURCE_DIR}/tools/completion/mortise.bash" RENAME mortise
        DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" COMPONENT command)

# The witness as a service of the system and of each user. systemd looks for units there, whatever the libraries' folder is.
# They name the command by its path, which only the installation knows: unit.cmake writes it.
set(unit_dir "${PROJECT_SOURCE_DIR}/packaging/systemd")
function(mortise_install_units NAME WHO COMPONENT)
    set(unit "${PROJECT_BINARY_DIR}/systemd/${WHO}/${NAME}.service")
    configure_file("${unit_dir}/${NAME}.service.in" "${unit}" @ONLY)
    install(FILES "${unit}" "${unit_dir}/${NAME}.socket" DESTINATION "lib/systemd/${WHO}" COMPONENT ${COMPONENT})
    install(CODE "include(\"${PROJECT_SOURCE_DIR}/cmake/unit.cmake\")
mortise_write_unit(\"lib/systemd/${WHO}/${NAME}.service\" \"${CMAKE_INSTALL_BINDIR}\")" COMPONENT ${COMPONENT})
endfunction()
foreach(who IN ITEMS system user)
    set(MORTISE_WITNESS_OOM "")
    if(who STREQUAL "system") # a user's manager may not make it less likely
        set(MORTISE_WITNESS_OOM "# when memory is short, others are killed, and their locks freed\nOOMScoreAdjust=-900\n")
    endif()
    mortise_install_units(mortise-witness ${who} command)
endforeach()

# The page, as a service of the system.
if(TARGET mortise-serve)
    mortise_install_units(mortise-serve system serve)
endif()

# CMake package
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Mortise")
set(module_dir "${CMAKE_INSTALL_LIBDIR}/mortise")
install(EXPORT MortiseTargets NAMESPACE Mortise:: DESTINATION "${package_dir}" COMPONENT dev)
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/MortiseConfig.cmake.in"
    "${PROJECT_BINARY_DIR}/MortiseConfig.cmake"
    INSTALL_DESTINATION "${package_dir}" PATH_VARS module_dir)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/MortiseConfigVersion.cmake"
    COMPATIBILITY ${MORTISE_COMPATIBILITY})
install(FILES "${PROJECT_BINARY_DIR}/MortiseConfig.cmake"
              "${PROJECT_BINARY_DIR}/MortiseConfigVersion.cmake" DESTINATION "${package_dir}"
        COMPONENT dev)

# pkg-config file: paths relative to the file itself, for the same reason as above.
set(pkgconfig_dir "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig")
foreach(what PREFIX FULL_LIBDIR FULL_INCLUDEDIR)
    file(RELATIVE_PATH pc_${what} "${pkgconfig_dir}" "${CMAKE_INSTALL_${what}}")
endforeach()
configure_file("${PROJECT_SOURCE_DIR}/cmake/mortise.pc.in" "${PROJECT_BINARY_DIR}/mortise.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/mortise.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT dev)

if(PROJECT_IS_TOP_LEVEL)
    add_custom_target(uninstall COMMENT "Removing what was installed from here" VERBATIM
        COMMAND "${CMAKE_COMMAND}" "-DMANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt"
                -P "${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake")
endif()
