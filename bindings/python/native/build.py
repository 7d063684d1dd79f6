"""build.py - the cffi module mortise._native: the C files beside this one, and the declarations that
Python sees. setup.py uses it.

MORTISE_INCLUDE and MORTISE_LIB are the folders of mortise.h and of the library that the module is linked with; both are
set by setup.py. At run time the library is found beside the module, in _prefix/lib."""
import os

import cffi

HERE = os.path.dirname(os.path.abspath(__file__))

# Declarations of mortise.h in the form that cffi reads. "...": the compiler fills in the rest, and checks what is given.
TYPES = """
#define MORTISE_PING_SIZE ...
typedef struct mortise_client mortise_client;
typedef struct mortise_lease mortise_lease;
typedef struct mortise_error {
    int status;
    int32_t native;
    bool retryable;
    char driver[32];
    char message[960];
    ...;
} mortise_error;
typedef struct mortise_options {
    size_t size;
    int64_t wait_ms;
    int64_t ttl_ms;
    const char *owner;
    bool no_renew;
    int64_t max_hold_ms;
    int mode;
    uint32_t permits;
    ...;
} mortise_options;
typedef struct mortise_info {
    bool held;
    char name[...];
    char owner[...];
    char host[...];
    char program[...];
    int64_t pid;
    int64_t held_ms;
    int64_t remaining_ms;
    uint64_t token;
    uint32_t leases;
    int32_t waiters;
    int mode;
    uint32_t permits;
    uint32_t holders;
    ...;
} mortise_info;
typedef struct mortise_stats {
    uint64_t acquires, waits, wait_ns, failures, handovers, releases, renewals, renewal_failures, losses, requests, held,
        waiting, joins;
    ...;
} mortise_stats;
int mortise_break(mortise_client *client, const char *name, uint64_t token, mortise_error *error);
int mortise_ping(mortise_client *client, char *text, size_t size, mortise_error *error);
uint32_t mortise_capabilities(mortise_client *client);
const char *mortise_config_source(mortise_client *client);
int64_t mortise_default_wait_ms(mortise_client *client);
const char *mortise_version(void);
extern "Python+C" void mpy_log(int level, char *line, void *user_data);
"""


def make_ffi():
    with open(os.path.join(HERE, "bridge.h"), encoding="utf-8") as file:
        bridge = "".join(line for line in file if not line.startswith("#"))
    ffi = cffi.FFI()
    ffi.cdef(TYPES + bridge)
    include = os.environ["MORTISE_INCLUDE"]
    ffi.set_source(
        "mortise._native", '#include "bridge.h"\n',
        sources=[os.path.relpath(os.path.join(HERE, name)) for name in ("slot.c", "acquire.c", "lease.c", "client.c", "wake.c")],
        depends=[os.path.join(HERE, name) for name in ("bridge.h", "slot.h", "wake.h")],
        include_dirs=[HERE, include], library_dirs=[os.environ["MORTISE_LIB"]], libraries=["mortise"],
        define_macros=[("_GNU_SOURCE", "1")],
        extra_compile_args=["-std=gnu11", "-fvisibility=hidden", *os.environ.get("MORTISE_CFLAGS", "").split()],
        extra_link_args=["-Wl,-rpath,$ORIGIN/_prefix/lib", *os.environ.get("MORTISE_LDFLAGS", "").split()])
    return ffi


ffibuilder = make_ffi()
