# What `cpack` makes of a build: .deb files, and .rpm files with `cpack -G RPM`, split as Debian would. A package is a component of the installation:
#
#   libmortise0.2         the library; named by its soname, as Debian does
#   libmortise-dev        headers, CMake package, pkg-config file, libmortise(3)
#   libmortise-doc        the reference of the headers as HTML, with -DMORTISE_API=ON
#   mortise               the command, its man pages and its completion, the witness's units, the documentation
#   mortise-serve         the page of the held locks, which needs an HTTP library
#   mortise-driver-NAME   a driver, which needs its client library
#   mortise-plugins       trace, chaos, metrics, …
#   mortise-conformance   the test suite for drivers, if the tests are built
#   mortise-bench         the comparison of drivers, if the benchmarks are built
#
# Every build makes the same packages, but for one path in the library: the install prefix of the build says where it looks for
# modules beside its own directory. So packages for others are configured with -DCMAKE_INSTALL_PREFIX=/usr. tests/packages/
# installs, uses and purges them.
if(NOT PROJECT_IS_TOP_LEVEL)
    return()
endif()

set(MORTISE_PACKAGE_CONTACT "The Mortise authors <packages@mortise.invalid>" CACHE STRING
    "Who made the packages: a name and a mail address")
configure_file("${PROJECT_SOURCE_DIR}/packaging/debian/changelog.in" "${PROJECT_BINARY_DIR}/debian/changelog.Debian" @ONLY)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME mortise)
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_CONTACT "${MORTISE_PACKAGE_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package has one of its own
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_MORTISE_BINDIR "${CMAKE_INSTALL_BINDIR}") # for finish.cmake
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/packaging/debian/finish.cmake")

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE) # one package for each
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${MORTISE_LIBRARY_DIR}")
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_RELEASE 1)
set(CPACK_RPM_PACKAGE_LICENSE MIT)
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION # of other packages
    /usr/lib/systemd /usr/lib/systemd/system /usr/lib/systemd/user /usr/libexec /usr/share/bash-completion
    /usr/share/bash-completion/completions /usr/share/man /usr/share/man/man1 /usr/share/man/man3 /usr/share/man/man5)

set(mortise_library_package "libmortise${MORTISE_SOVERSION}")
set(same_library "${mortise_library_package} (= ${PROJECT_VERSION}-1)")
set(about "Mortise acquires named locks that processes on many hosts share. A driver,
loaded at run time, keeps them in a SQLite file, Redis, ZooKeeper, etcd,
PostgreSQL or MySQL.")

# mortise_package(COMPONENT NAME package SECTION section MULTI_ARCH same|foreign SUMMARY line TEXT text [DEPENDS …]
#                 [RECOMMENDS …])
# MULTI_ARCH same: can be installed for several architectures at a time. foreign: a package of another architecture serves
# as well.
macro(mortise_package COMPONENT)
    cmake_parse_arguments(arg "" "NAME;SECTION;MULTI_ARCH;SUMMARY;TEXT;DEPENDS;RECOMMENDS" "" ${ARGN})
    string(TOUPPER "${COMPONENT}" upper)
    set(CPACK_DEBIAN_${upper}_PACKAGE_NAME "${arg_NAME}")
    if(CMAKE_VERSION VERSION_LESS 3.31) # cpack knows no such field, and writes this one as it stands
        set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION "${arg_SECTION}\nMulti-Arch: ${arg_MULTI_ARCH}")
    else()
        set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION "${arg_SECTION}")
        set(CPACK_DEBIAN_${upper}_PACKAGE_MULTIARCH "${arg_MULTI_ARCH}")
    endif()
    set(CPACK_DEBIAN_${upper}_DESCRIPTION "${arg_SUMMARY}\n${about}\n\n${arg_TEXT}")
    set(CPACK_RPM_${upper}_PACKAGE_NAME "${arg_NAME}")
    set(CPACK_RPM_${upper}_PACKAGE_SUMMARY "${arg_SUMMARY}")
    set(CPACK_RPM_${upper}_PACKAGE_DESCRIPTION "${about}\n\n${arg_TEXT}")
    if("${arg_DEPENDS}" MATCHES "${mortise_library_package}") # rpm finds the libraries, but not which version of ours
        set(CPACK_RPM_${upper}_PACKAGE_REQUIRES "${mortise_library_package} = ${PROJECT_VERSION}")
    endif()
    if(arg_DEPENDS)
        set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${arg_DEPENDS}")
    endif()
    if(arg_RECOMMENDS)
        set(CPACK_DEBIAN_${upper}_PACKAGE_RECOMMENDS "${arg_RECOMMENDS}")
    endif()
    list(APPEND CPACK_COMPONENTS_ALL ${COMPONENT})
    set(doc "${CMAKE_INSTALL_DATADIR}/doc/${arg_NAME}")
    install(FILES "${PROJECT_SOURCE_DIR}/packaging/debian/copyright" DESTINATION "${doc}" COMPONENT ${COMPONENT}
            EXCLUDE_FROM_ALL)
    install(FILES "${PROJECT_BINARY_DIR}/debian/changelog.Debian" DESTINATION "${doc}" COMPONENT ${COMPONENT} EXCLUDE_FROM_ALL)
endmacro()

set(CPACK_COMPONENTS_ALL "")
mortise_package(library NAME ${mortise_library_package} SECTION libs MULTI_ARCH same
    SUMMARY "distributed locks: the library" TEXT "This is the shared library. It needs a driver."
    RECOMMENDS "mortise-driver-${MORTISE_DEFAULT_DRIVER}")
mortise_package(dev NAME libmortise-dev SECTION libdevel MULTI_ARCH same DEPENDS "${same_library}"
    SUMMARY "distributed locks: headers for C and C++" TEXT "These are the headers, for programs and for drivers.")
if(MORTISE_API AND TARGET api)
    mortise_package(doc NAME libmortise-doc SECTION doc MULTI_ARCH foreign
        SUMMARY "distributed locks: reference of the headers" TEXT "This is the reference of the public headers as HTML.")
    set(CPACK_DEBIAN_DOC_PACKAGE_ARCHITECTURE all)
endif()
mortise_package(command NAME mortise SECTION utils MULTI_ARCH foreign DEPENDS "${same_library}"
    RECOMMENDS "mortise-driver-${MORTISE_DEFAULT_DRIVER}"
    SUMMARY "distributed locks: run a command under one"
    TEXT "This command runs other commands under a lock, and shows who holds which\nlock. The witness frees the locks of processes that crash.")
if(TARGET mortise-serve)
    mortise_package(serve NAME mortise-serve SECTION utils MULTI_ARCH foreign DEPENDS "${same_library}, mortise (= ${PROJECT_VERSION}-1)"
        SUMMARY "distributed locks: a web page of the held ones"
        TEXT "This is the program behind \"mortise serve\": a read-only page that shows who\nholds which lock, with metrics for Prometheus.")
endif()
get_property(drivers GLOBAL PROPERTY MORTISE_DRIVERS_BUILT)
set(backend_sqlite "a SQLite file")
set(backend_redis "Redis")
set(backend_redlock "a majority of Redis servers")
set(backend_zookeeper "ZooKeeper")
set(backend_etcd "etcd")
set(backend_postgres "PostgreSQL")
set(backend_mysql "MySQL or MariaDB")
foreach(driver IN LISTS drivers)
    set(backend "${driver}")
    if(DEFINED backend_${driver})
        set(backend "${backend_${driver}}")
    endif()
    mortise_package(driver_${driver} NAME mortise-driver-${driver} SECTION libs MULTI_ARCH same DEPENDS "${same_library}"
        SUMMARY "distributed locks: the driver for ${backend}" TEXT "This driver keeps the locks in ${backend}.")
endforeach()
mortise_package(plugins NAME mortise-plugins SECTION libs MULTI_ARCH same DEPENDS "${same_library}"
    SUMMARY "distributed locks: plugins"
    TEXT "The plugins trace events, count them for Prometheus, move a fleet from one\nbackend to another, or inject faults into any driver.")
if(TARGET conformance)
    mortise_package(conformance NAME mortise-conformance SECTION devel MULTI_ARCH foreign DEPENDS "${same_library}"
        SUMMARY "distributed locks: the test suite for drivers" TEXT "Authors of drivers run this suite against their driver.")
endif()
if(TARGET adapter-mortise)
    mortise_package(bench NAME mortise-bench SECTION utils MULTI_ARCH foreign DEPENDS "${same_library}, python3"
        SUMMARY "distributed locks: compare the drivers"
        TEXT "This program measures the drivers, bare clients of the same servers and other\nlock libraries, and writes a report.")
endif()

# Pages and examples beside a package. From the source they are at hand.
function(mortise_package_documents COMPONENT PACKAGE)
    cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "PAGES;EXAMPLES;EXAMPLE_FOLDERS")
    set(doc "${CMAKE_INSTALL_DATADIR}/doc/${PACKAGE}")
    list(TRANSFORM arg_PAGES PREPEND "${PROJECT_SOURCE_DIR}/docs/")
    list(TRANSFORM arg_EXAMPLES PREPEND "${PROJECT_SOURCE_DIR}/examples/")
    list(TRANSFORM arg_EXAMPLE_FOLDERS PREPEND "${PROJECT_SOURCE_DIR}/examples/")
    install(FILES ${arg_PAGES} DESTINATION "${doc}" COMPONENT ${COMPONENT} EXCLUDE_FROM_ALL)
    if(arg_EXAMPLES)
        install(FILES ${arg_EXAMPLES} DESTINATION "${doc}/examples" COMPONENT ${COMPONENT} EXCLUDE_FROM_ALL)
    endif()
    if(arg_EXAMPLE_FOLDERS)
        install(DIRECTORY ${arg_EXAMPLE_FOLDERS} DESTINATION "${doc}/examples" COMPONENT ${COMPONENT} EXCLUDE_FROM_ALL
                USE_SOURCE_PERMISSIONS)
    endif()
endfunction()
mortise_package_documents(dev libmortise-dev PAGES cxx.md driver-guide.md fencing.md promises.md threading.md
    EXAMPLES hello.c EXAMPLE_FOLDERS driver-skeleton event-loops)
# All pages, except those for work on Mortise itself, and those of other packages.
file(GLOB pages CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/docs" "${PROJECT_SOURCE_DIR}/docs/*.md")
list(REMOVE_ITEM pages README.md architecture.md benchmarking.md changing.md cxx.md driver-guide.md plugins.md replay.md review.md
     testing.md threading.md)
mortise_package_documents(command mortise PAGES ../README.md ../CHANGELOG.md ../SECURITY.md ${pages})
mortise_package_documents(plugins mortise-plugins PAGES plugins.md operating.md EXAMPLES grafana-dashboard.json prometheus-rules.yml)
if(TARGET mortise-serve)
    mortise_package_documents(serve mortise-serve PAGES operating.md)
endif()
if(TARGET adapter-mortise)
    mortise_package_documents(bench mortise-bench PAGES benchmarking.md)
endif()

# What the library exports, since which version: checked by tests/packages, shipped for dpkg-shlibdeps.
set(debian_dir "${PROJECT_SOURCE_DIR}/packaging/debian")
set(made_dir "${PROJECT_BINARY_DIR}/debian")
file(WRITE "${made_dir}/shlibs" "libmortise ${MORTISE_SOVERSION} ${mortise_library_package} (>= ${PROJECT_VERSION})\n")
file(WRITE "${made_dir}/triggers" "activate-noawait ldconfig\n")
configure_file("${debian_dir}/symbols" "${made_dir}/symbols" COPYONLY)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA "${made_dir}/shlibs" "${made_dir}/symbols" "${made_dir}/triggers")
install(FILES "${debian_dir}/library.overrides" DESTINATION "${CMAKE_INSTALL_DATADIR}/lintian/overrides"
        RENAME "${mortise_library_package}" COMPONENT library EXCLUDE_FROM_ALL)

# mortise_package_units(COMPONENT SYSTEM unit… USER unit… SERVICES unit…): scripts that stop the units before a removal, and
# remove the links of `systemctl enable` with a purge.
function(mortise_package_units COMPONENT)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SYSTEM;USER;SERVICES")
    string(REPLACE ";" " " SYSTEM_UNITS "${arg_SYSTEM}")
    string(REPLACE ";" " " USER_UNITS "${arg_USER}")
    string(REPLACE ";" " " SERVICES "${arg_SERVICES}")
    set(scripts "")
    foreach(script postinst prerm postrm)
        configure_file("${debian_dir}/units.${script}.in" "${made_dir}/${COMPONENT}/${script}" @ONLY)
        list(APPEND scripts "${made_dir}/${COMPONENT}/${script}")
    endforeach()
    string(TOUPPER "${COMPONENT}" upper)
    set(CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA "${scripts}" PARENT_SCOPE)
endfunction()
mortise_package_units(command SYSTEM mortise-witness.socket mortise-witness.service SERVICES mortise-witness.service
    USER mortise-witness.socket mortise-witness.service)
if(TARGET mortise-serve)
    mortise_package_units(serve SYSTEM mortise-serve.socket mortise-serve.service SERVICES mortise-serve.service)
endif()
configure_file("${debian_dir}/sqlite.postrm" "${made_dir}/sqlite/postrm" COPYONLY)
set(CPACK_DEBIAN_DRIVER_SQLITE_PACKAGE_CONTROL_EXTRA "${made_dir}/sqlite/postrm")
include(CPack)
