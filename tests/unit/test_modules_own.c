/* test_modules_own.c - users who could replace the library may have modules too (R11): who these are, of copies of libmortise.so
 * that are loaded beside this program. */
#include "acl.h"
#include "config_test.h"

#include <dlfcn.h>
#include <stdarg.h>

#define LIBRARY TEST_MODULE_DIR "/../libmortise.so"

/* FOLDER/libmortise.so and FOLDER/mortise/sink.so, in the folder of the test. */
struct copy {
    char folder[128], library[160], modules[160];
    mortise_status (*list)(const char *where, mortise_module_callback each, void *user_data,
                           mortise_error *error);
};

static void copy_file(const char *from, const char *to)
{
    char command[1024];
    snprintf(command, sizeof(command), "cp -L '%s' '%s' && chmod 755 '%s'", from, to, to);
    CU_ASSERT_EQUAL_FATAL(system(command), 0);
}

static void copy_make(struct copy *copy, const char *name)
{
    char module[200];
    snprintf(copy->folder, sizeof(copy->folder), "%s/%s", test_folder, name);
    snprintf(copy->library, sizeof(copy->library), "%s/libmortise.so", copy->folder);
    snprintf(copy->modules, sizeof(copy->modules), "%s/mortise", copy->folder);
    snprintf(module, sizeof(module), "%s/sink.so", copy->modules);
    CU_ASSERT_FATAL(mkdir(copy->folder, 0755) == 0 && mkdir(copy->modules, 0755) == 0);
    CU_ASSERT_FATAL(chmod(copy->folder, 0755) == 0 && chmod(copy->modules, 0755) == 0);
    copy_file(LIBRARY, copy->library);
    copy_file(TEST_FIXTURE_DIR "/sink.so", module);
}

/* It stays loaded. */
static void copy_load(struct copy *copy)
{
    void *handle = dlopen(copy->library, RTLD_NOW | RTLD_LOCAL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(handle);
    void *found = dlsym(handle, "mortise_modules");
    CU_ASSERT_PTR_NOT_NULL_FATAL(found);
    memcpy(&copy->list, &found, sizeof(found));
}

static bool find_sink(const mortise_module_info *info, const mortise_option_info *options,
                      size_t option_count, const char *problem, void *found)
{
    (void)options, (void)option_count;
    *(bool *)found |= problem == NULL && strcmp(info->name, "sink") == 0;
    return true;
}

static void accepts(struct copy *copy)
{
    mortise_error error = {.message = ""};
    bool found = false;
    CU_ASSERT_EQUAL(copy->list("sqlite:", find_sink, &found, &error), MORTISE_OK);
    CU_ASSERT(found);
    EXPECT_ERROR(error, "");
}

static void refuses(struct copy *copy, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void refuses(struct copy *copy, const char *format, ...)
{
    mortise_error error = {.message = ""};
    char wanted[600];
    bool found = false;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(wanted, sizeof(wanted), format, arguments);
    va_end(arguments);
    CU_ASSERT_EQUAL(copy->list("sqlite:", find_sink, &found, &error), MORTISE_CONFIG);
    CU_ASSERT_FALSE(found);
    EXPECT_ERROR(error, wanted);
}

/* A library that is in memory, and whose folder was removed from a place where anybody may make another. */
static void test_replaced(void)
{
    struct copy root, other;
    copy_make(&root, "replaced");
    copy_load(&root);
    accepts(&root);
    CU_ASSERT_EQUAL(rename(root.folder, "away"), 0);
    copy_make(&other, "replaced");
    accepts(&root); /* by the same user, as an upgrade does */
    if (geteuid() != 0)
        return; /* only root can make what is another's */
    CU_ASSERT_EQUAL(chown(other.library, 4711, 4711), 0);
    CU_ASSERT_EQUAL(chown(other.modules, 4711, 4711), 0);
    refuses(
        &root,
        "%s: modules are not loaded from what belongs to user 4711: it must belong to root or to "
        "the running user (chown)",
        other.modules);
    CU_ASSERT_EQUAL(chown(other.folder, 4711, 4711), 0);
    refuses(
        &root,
        "%s: modules are not loaded from a path that others can replace: %s belongs to user 4711, "
        "its mode is 0755 (chown, chmod go-w)",
        other.modules, other.folder);
}

static void refuses_mode(struct copy *copy, unsigned mode)
{
    refuses(
        copy,
        "%s: modules are not loaded from a file or directory that others can write: its mode is "
        "%04o (chmod go-w)",
        copy->modules, mode);
}

/* What the library's group may write is good, but with an ACL the bits of the group say nothing about the group. */
static void test_group(void)
{
    struct copy shared, listed;
    copy_make(&shared, "shared");
    CU_ASSERT_EQUAL(chmod(shared.folder, 0775), 0);
    copy_load(&shared);
    CU_ASSERT_EQUAL(chmod(shared.modules, 0775), 0);
    accepts(&shared);
    if (!acl_let_in(shared.modules, 4711))
        return;
    refuses_mode(&shared, 0770);
    copy_make(&listed, "listed");
    CU_ASSERT_TRUE(acl_let_in(listed.folder, 4711));
    copy_load(&listed);
    accepts(&listed);
    CU_ASSERT_EQUAL(chmod(listed.modules, 0775), 0);
    refuses_mode(&listed, 0775);
}

int main(void)
{
    CU_TestInfo tests[] = {{"a library that was replaced", test_replaced},
                           {"a library of a group", test_group},
                           CU_TEST_INFO_NULL};
    return run_tests("modules_own", tests);
}
