/* test_modules.c - finds modules and refuses bad ones: the handshake field by field, with fixtures that are wrong in
 * one way each; the module path (R11); reading a module's table without opening it. */
#include "acl.h"
#include "loader_test.h"

#include <grp.h>

/* ---- The handshake --------------------------------------------------------------------------- */

static void refused(const char *name, const char *wanted)
{
    char message[1200];

    snprintf(message, sizeof(message), FIXTURES "/%s.so%s", name, wanted);
    open_bad(FILE_NAME, name, 0, MORTISE_CONFIG, message);
}

static void refused_size(const char *name, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void refused_size(const char *name, const char *format, ...)
{
    char wanted[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(wanted, sizeof(wanted), format, arguments);
    va_end(arguments);
    refused(name, wanted);
}

static void test_handshake(void)
{
    size_t module = sizeof(mortise_module), op = sizeof(mortise_op);
    size_t least = offsetof(mortise_module, capabilities_of);
    size_t least_op = offsetof(mortise_op, emitted) + sizeof(void (*)(void));
    size_t info = sizeof(mortise_info),
           least_info = offsetof(mortise_info, waiters) + sizeof(int32_t);

    put_config("");
    refused("bad_magic", ": magic is 0x12345678, expected 0x4d525431: not a module");
    refused("bad_abi", ": abi is 3, expected 2: built for another mortise");
    refused_size("big_module",
                 ": module_size is %zu, expected at most %zu: built for a newer mortise",
                 module + 8, module);
    refused_size("small_module", ": module_size is %zu, expected %zu to %zu", least - 8, least,
                 module);
    refused_size("odd_module", ": module_size is %zu, expected a multiple of %zu", module - 4,
                 sizeof(void *));
    refused_size("big_op", ": op_size is %zu, expected at most %zu: built for a newer mortise",
                 op + 8, op);
    refused_size("small_op", ": op_size is 16, expected %zu to %zu", least_op, op);
    refused_size("big_info", ": info_size is %zu, expected at most %zu: built for a newer mortise",
                 info + 8, info);
    refused_size("small_info", ": info_size is 16, expected %zu to %zu", least_info, info);
    refused_size("bad_option", ": option_size is %zu, expected %zu", sizeof(mortise_option) - 8,
                 sizeof(mortise_option));
    refused_size("older_plugin", ": op_size is %zu, expected %zu of a plugin",
                 offsetof(mortise_op, mode), op);
    refused_size("older_infos", ": info_size is %zu, expected %zu of a plugin",
                 offsetof(mortise_info, mode), info);
    refused("bad_kind", ": kind is 4, expected 1 to 3");
    refused("bad_name", ": name is not 1 to 31 letters, digits, '_', '-' and '+'");
    refused("no_turn", ": turn is missing, which every driver must have");
    refused("no_summary", ": summary is missing, which every driver must have");
    refused("no_options", ": options is missing, which every driver must have");
    refused("deaf", ": observe is missing, which every observer must have");
    refused("bad_schema",
            ": options: level has the default \"12\", expected a whole number, 1 to 9");
    refused("no_symbol", ": the symbol mortise_module_v1 is missing: not a module");
    refused("unresolved",
            " cannot be loaded: undefined symbol: mortise_fixture_not_there"); /* RTLD_NOW */
}

/* An older, smaller table: what it does not have is zero. */
static void test_older(void)
{
    struct bench bench;

    put_config("");
    bench_load(&bench, FILE_NAME);
    struct instance *old = open_good(&bench, "old");
    CU_ASSERT_PTR_NULL(old->module.capabilities_of);
    CU_ASSERT_PTR_NULL(old->module.schema);
    CU_ASSERT_EQUAL(old->capabilities, MORTISE_CAP_LEASE);
    CU_ASSERT_EQUAL(open_good(&bench, "older")->capabilities, MORTISE_CAP_LEASE);
    bench_close(&bench);
}

/* ---- The module path (R11) ------------------------------------------------------------------- */

static void refused_name(const char *name, const char *quoted)
{
    char wanted[256];
    snprintf(wanted, sizeof(wanted),
             "mortise.conf: bad module name %s: expected 1 to 31 letters, digits, '_', '-' and '+'",
             quoted);
    open_bad(FILE_NAME, name, 0, MORTISE_CONFIG, wanted);
}

static void test_names(void)
{
    put_config("");
    refused_name("", "\"\"");
    refused_name("../sink", "\"../sink\"");
    refused_name("/etc/passwd", "\"/etc/passwd\"");
    refused_name("sink.so", "\"sink.so\"");
    refused_name("s nk", "\"s nk\"");
    refused_name("mortise", "\"mortise\"");
    refused_name("aaaaaaaaaabbbbbbbbbbccccccccccdd", "\"aaaaaaaaaabbbbbbbbbbccccccccccdd\"");
    refused_name("\xc3\xa4", "\"\\xc3\\xa4\"");
}

/* The message begins with this. What else there is depends on the machine. */
static void lacks(const char *where, const char *section, const char *begins, const char *has)
{
    struct bench bench;
    struct instance *instance;
    mortise_error error = {.message = ""};

    bench_load(&bench, where);
    CU_ASSERT_EQUAL(loader_open(&bench.loader, section, NULL, 0, &instance, &error),
                    MORTISE_CONFIG);
    bool good =
        strncmp(error.message, begins, strlen(begins)) == 0 && strstr(error.message, has) != NULL;
    if (!good)
        fprintf(stderr, "\n    told:   %s\n    wanted: %s ... %s\n", error.message, begins, has);
    CU_ASSERT(good);
    bench_close(&bench);
}

static void test_not_found(void)
{
    char text[512], tried[512];

    mkdir("some", 0755);
    put("some/redis.so", "x");
    put("some/zookeeper.so", "x");
    snprintf(text, sizeof(text),
             "[mortise]\nmodule_path = %s/some:/nowhere\ndriver = redi\nobserve = ear, loud\n"
             "[layer]\nbelow = zokeeper:b\n[zokeeper:b]\n",
             test_folder);
    put(FILE_NAME, text);
    snprintf(tried, sizeof(tried),
             "zookeeper); tried %s/some/redi.so, /nowhere/redi.so, %s/redi.so", test_folder,
             MORTISE_MODULE_DIR);
    lacks(FILE_NAME, "redi",
          "mortise.conf:3: [mortise] driver: no module \"redi\" (did you mean \"redis\"?): install "
          "its "
          "package",
          tried);
    lacks(FILE_NAME, "loud",
          "mortise.conf:4: [mortise] observe: no module \"loud\": install its package",
          "redis, zookeeper");
    lacks(FILE_NAME, "none", "mortise.conf: no module \"none\": install its package",
          "redis, zookeeper");
    snprintf(text, sizeof(text),
             "[mortise]\nmodule_path = ${FIXTURES}:%s/some\n[layer]\nbelow = zokeeper:b\n"
             "[zokeeper:b]\n",
             test_folder);
    put(FILE_NAME, text);
    lacks(FILE_NAME, "layer",
          "mortise.conf:4: [layer] below: no module \"zokeeper\" (did you mean \"zookeeper\"?): "
          "install ",
          "tried " FIXTURES "/zokeeper.so");
    lacks("redi:/x", "redi", "redi:/x: no module \"redi\"", "tried ");
    put("mortise.conf", "[mortise]\nmodule_path = ${FIXTURES}/sink.so:${FIXTURES}:${FIXTURES}\n");
    struct bench bench; /* what is no folder has no modules */
    bench_load(&bench, FILE_NAME);
    open_good(&bench, "sink");
    bench_close(&bench);
}

static void bad_path(const char *path, const char *wanted)
{
    char text[512];
    snprintf(text, sizeof(text), "[mortise]\nmodule_path = %s\n", path);
    put(FILE_NAME, text);
    open_bad(FILE_NAME, "sink", 0, MORTISE_CONFIG, wanted);
}

static void refused_mode(const char *what, const char *module_path, const char *told, unsigned mode)
{
    char wanted[512];
    CU_ASSERT_EQUAL(chmod(what, mode), 0);
    snprintf(
        wanted, sizeof(wanted),
        "%s: modules are not loaded from a file or directory that others can write: its mode is "
        "%04o (chmod go-w)",
        told, mode);
    bad_path(module_path, wanted);
}

static void test_paths(void)
{
    char path[256], file[280], wanted[512];

    bad_path("relative", "module path \"relative\": relative is not an absolute directory");
    bad_path("./x", "module path \"./x\": ./x is not an absolute directory");
    bad_path("/a::/b", "module path \"/a::/b\": an empty part is not an absolute directory");
    bad_path("/a:", "module path \"/a:\": an empty part is not an absolute directory");
    bad_path("/a:b:/c", "module path \"/a:b:/c\": b is not an absolute directory");

    mkdir("open", 0700);
    snprintf(path, sizeof(path), "%s/open", test_folder);
    refused_mode("open", path, path, 0777);
    refused_mode("open", path, path, 01777);
    chmod("open", 0755);
    put("open/sink.so", "not a shared object");
    snprintf(wanted, sizeof(wanted), "%s/sink.so cannot be loaded: file too short", path);
    bad_path(path, wanted);
    put("open/sink.so", "this is not a shared object, but a text that is long enough to have had a "
                        "header of one");
    snprintf(wanted, sizeof(wanted), "%s/sink.so cannot be loaded: invalid ELF header", path);
    bad_path(path, wanted);
    snprintf(file, sizeof(file), "%s/sink.so", path);
    refused_mode("open/sink.so", path, file, 0666);
    CU_ASSERT_EQUAL(unlink("open/sink.so"), 0);
    CU_ASSERT_EQUAL(symlink("sink.so", "open/sink.so"), 0);
    snprintf(wanted, sizeof(wanted), "%s/sink.so cannot be read: Too many levels of symbolic links",
             path);
    bad_path(path, wanted);

    put_config("");
    chmod(FILE_NAME, 0620);
    open_bad(FILE_NAME, "sink", 0, MORTISE_CONFIG,
             "mortise.conf: [mortise] module_path is refused: users other than its owner can write "
             "the file (chmod go-w)");
}

static void opens(const char *module_path)
{
    struct bench bench;
    char text[512];
    snprintf(text, sizeof(text), "[mortise]\nmodule_path = %s\n", module_path);
    put(FILE_NAME, text);
    bench_load(&bench, FILE_NAME);
    open_good(&bench, "sink");
    bench_close(&bench);
}

static void refused_above(const char *module_path, const char *what, const char *told,
                          unsigned user, unsigned mode)
{
    char wanted[512];
    snprintf(wanted, sizeof(wanted),
             "%s: modules are not loaded from a path that others can replace: %s belongs to user "
             "%u, its mode is %04o (chown, chmod go-w)",
             what, told, user, mode);
    bad_path(module_path, wanted);
}

/* In the groups that the core looks up: a further member, and the user whose private group it is; or NULL, for what is so here. */
static char *members[3];
int __real_getgrgid_r(gid_t id, struct group *group, char *buffer, size_t size,
                      struct group **result);
int __wrap_getgrgid_r(gid_t id, struct group *group, char *buffer, size_t size,
                      struct group **result);

int __wrap_getgrgid_r(gid_t id, struct group *group, char *buffer, size_t size,
                      struct group **result)
{
    int problem = __real_getgrgid_r(id, group, buffer, size, result);
    if (problem == 0 && *result != NULL && members[0] != NULL)
        group->gr_mem = members;
    return problem;
}

/* Who may write a folder above that of the modules can put another one in its place. */
static void test_folders_above(void)
{
    char outer[128], inner[160], file[180], link[128], own[128];
    snprintf(outer, sizeof(outer), "%s/outer", test_folder);
    snprintf(inner, sizeof(inner), "%s/inner", outer);
    snprintf(file, sizeof(file), "%s/sink.so", inner);
    snprintf(link, sizeof(link), "%s/link", test_folder);
    snprintf(own, sizeof(own), "%s/own", test_folder);
    CU_ASSERT_FATAL(mkdir(outer, 0700) == 0 && mkdir(inner, 0700) == 0 && mkdir(own, 0700) == 0);
    CU_ASSERT_EQUAL_FATAL(symlink(FIXTURES "/sink.so", file), 0);
    CU_ASSERT_EQUAL_FATAL(symlink(inner, link), 0);
    CU_ASSERT_EQUAL_FATAL(symlink(file, "own/sink.so"), 0);
    opens(inner);
    CU_ASSERT_EQUAL(chmod(outer, 0777), 0);
    refused_above(inner, inner, outer, geteuid(), 0777);
    refused_above(link, inner, outer, geteuid(), 0777); /* by another way */
    CU_ASSERT_EQUAL(chmod(outer, 01777), 0);            /* what is ours stays there, as in /tmp */
    opens(inner);
    opens(link);
    CU_ASSERT_EQUAL(chmod(outer, 0755), 0);
    opens(own);
    if (geteuid() != 0)
        return; /* only root can make what is another's */
    CU_ASSERT_EQUAL(chown(outer, 4711, 4711), 0);
    refused_above(inner, inner, outer, 4711, 0755);
    CU_ASSERT_EQUAL(chown(outer, 0, 0), 0);
    CU_ASSERT_EQUAL(chmod(outer, 0775), 0); /* root's own group has nobody else in it */
    opens(inner);
    members[0] = (char[]){"root"}; /* some systems list him */
    opens(inner);
    members[1] = (char[]){"somebody"};
    refused_above(inner, inner, outer, 0, 0775);
    members[0] = members[1] = NULL;
    if (acl_let_in(outer, 4711)) {
        refused_above(inner, inner, outer, 0, 0770);
        CU_ASSERT_EQUAL(chmod(outer, 0750), 0); /* the list is there, and permits less */
        opens(inner);
        CU_ASSERT_EQUAL(removexattr(outer, "system.posix_acl_access"), 0);
        CU_ASSERT_EQUAL(chmod(outer, 0775), 0);
    }
    CU_ASSERT_EQUAL(chown(outer, 0, 4711), 0);
    refused_above(inner, inner, outer, 0, 0775);
    CU_ASSERT_EQUAL(chown(outer, 0, 0), 0);
    CU_ASSERT_EQUAL(lchown(link, 4711, 4711), 0); /* he could turn it elsewhere */
    refused_above(link, link, link, 4711, 0777);
}

/* A link leads to a link in a folder that others may write: that folder is on neither the path as given nor the one
 * without links. */
static void test_links_between(void)
{
    char open[128], between[160], inner[160], chain[160], far[160];
    snprintf(open, sizeof(open), "%s/anybodys", test_folder);
    snprintf(between, sizeof(between), "%s/link", open);
    snprintf(inner, sizeof(inner), "%s/modules", test_folder);
    snprintf(chain, sizeof(chain), "%s/chain", test_folder);
    snprintf(far, sizeof(far), "%s/far", test_folder);
    CU_ASSERT_FATAL(mkdir(open, 0700) == 0 && mkdir(inner, 0700) == 0);
    CU_ASSERT_EQUAL_FATAL(symlink(FIXTURES "/sink.so", "modules/sink.so"), 0);
    CU_ASSERT_EQUAL_FATAL(symlink("../modules", between), 0);
    CU_ASSERT_EQUAL_FATAL(symlink("anybodys/link", chain), 0);
    CU_ASSERT_EQUAL_FATAL(symlink("chain/../modules/.", far), 0);
    opens(chain);
    opens(far);
    CU_ASSERT_EQUAL(chmod(open, 0777), 0);
    refused_above(between, between, open, geteuid(), 0777);
    refused_above(chain, between, open, geteuid(), 0777);
    snprintf(between, sizeof(between), "%s/link/../modules/.", open);
    refused_above(far, between, open, geteuid(), 0777);
    CU_ASSERT_EQUAL(chmod(open, 0755), 0);
    CU_ASSERT_EQUAL(unlink("modules/sink.so"), 0); /* the same of the file's own link */
    CU_ASSERT_EQUAL(symlink("../anybodys/sink.so", "modules/sink.so"), 0);
    CU_ASSERT_EQUAL(symlink(FIXTURES "/sink.so", "anybodys/sink.so"), 0);
    opens(inner);
    CU_ASSERT_EQUAL(chmod(open, 0777), 0);
    snprintf(between, sizeof(between), "%s/../anybodys/sink.so", inner);
    snprintf(far, sizeof(far), "%s/../anybodys", inner);
    refused_above(inner, between, far, geteuid(), 0777);
}

/* ---- Looking without opening ----------------------------------------------------------------- */

struct seen {
    char text[4096];
    size_t stop_after, calls;
};

static bool see(const mortise_module_info *info, const mortise_option_info *options,
                size_t option_count, const char *problem, void *user_data)
{
    struct seen *seen = user_data;
    size_t used = strlen(seen->text);

    CU_ASSERT_EQUAL(info->size, sizeof(*info));
    CU_ASSERT_EQUAL(strncmp(info->path, "/", 1), 0);
    snprintf(seen->text + used, sizeof(seen->text) - used, "%s|%s|%s|%u|%zu|%s\n", info->name,
             info->kind, info->version, info->abi, option_count,
             option_count > 0  ? options[option_count - 1].range
             : problem == NULL ? ""
                               : "!");
    return ++seen->calls != seen->stop_after;
}

static void test_scan(void)
{
    static const char *const wanted[] = {"sink|driver|1.2|2|5|yes|no\n",
                                         "layer|plugin|1.3|2|4|yes|no\n",
                                         "ear|observer|1.1|2|0|\n",
                                         "old|driver|1.0|2|0|\n",
                                         "bad_abi|||0|0|!\n",
                                         "no_symbol|||0|0|!\n"};
    struct seen seen = {.text = ""};
    char text[512];

    put_config("");
    struct config *config = load_good(FILE_NAME);
    CU_ASSERT_EQUAL(loader_scan(config, see, &seen, NULL), MORTISE_OK);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        CU_ASSERT_PTR_NOT_NULL(strstr(seen.text, wanted[i]));
    CU_ASSERT(strstr(seen.text, "ear|") < strstr(seen.text, "sink|")); /* by name */
    seen = (struct seen){.stop_after = 2};
    CU_ASSERT_EQUAL(loader_scan(config, see, &seen, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(seen.calls, 2);
    config_free(config);

    /* an earlier folder goes first, another name of a module is no module of its own, and what is
     * called otherwise is none */
    mkdir("scan", 0755);
    put("scan/sink.so", "x");
    put("scan/readme.txt", "x");
    put("scan/.so", "x");
    put("scan/a b.so", "x");
    CU_ASSERT_EQUAL(symlink(FIXTURES "/ear.so", "scan/ear.so"), 0);
    CU_ASSERT_EQUAL(symlink("ear.so", "scan/oreille.so"), 0);
    CU_ASSERT_EQUAL(symlink(FIXTURES "/layer.so", "scan/couche.so"), 0);
    snprintf(text, sizeof(text), "[mortise]\nmodule_path = %s/scan:%s/nowhere\n", test_folder,
             test_folder);
    put(FILE_NAME, text);
    config = load_good(FILE_NAME);
    seen = (struct seen){.text = ""};
    CU_ASSERT_EQUAL(loader_scan(config, see, &seen, NULL), MORTISE_OK);
    CU_ASSERT_STRING_EQUAL(seen.text,
                           "layer|plugin|1.3|2|4|yes|no\near|observer|1.1|2|0|\nsink|||0|0|!\n");
    config_free(config);
    snprintf(text, sizeof(text), "[mortise]\nmodule_path = %s/scan:${FIXTURES}\n", test_folder);
    put(FILE_NAME, text);
    config = load_good(FILE_NAME);
    seen = (struct seen){.text = ""};
    CU_ASSERT_EQUAL(loader_scan(config, see, &seen, NULL), MORTISE_OK);
    CU_ASSERT_PTR_NULL(strstr(seen.text, "sink|driver"));
    config_free(config);
    put(FILE_NAME, "[mortise]\nmodule_path = x\n");
    config = load_good(FILE_NAME);
    CU_ASSERT_EQUAL(loader_scan(config, see, &seen, NULL), MORTISE_CONFIG);
    config_free(config);
}

static void take_name(const mortise_module *module, void *argument)
{
    snprintf(argument, 32, "%s", module->name);
}

static void test_peek(void)
{
    char name[32] = "";
    mortise_error error;

    put_config("");
    struct config *config = load_good(FILE_NAME);
    CU_ASSERT_EQUAL(loader_peek(config, "sink", take_name, name, &error), MORTISE_OK);
    CU_ASSERT_STRING_EQUAL(name, "sink");
    name[0] = '\0';
    CU_ASSERT_EQUAL(loader_peek(config, "bad_kind", take_name, name, &error), MORTISE_CONFIG);
    CU_ASSERT_EQUAL(loader_peek(config, "../sink", take_name, name, &error), MORTISE_CONFIG);
    CU_ASSERT_STRING_EQUAL(name, "");
    config_free(config);
}

int main(void)
{
    CU_TestInfo tests[] = {{"the handshake", test_handshake},
                           {"an older module", test_older},
                           {"bad names", test_names},
                           {"not found", test_not_found},
                           {"bad paths", test_paths},
                           {"folders above", test_folders_above},
                           {"links between", test_links_between},
                           {"scan", test_scan},
                           {"peek", test_peek},
                           CU_TEST_INFO_NULL};
    return run_tests("modules", tests);
}
