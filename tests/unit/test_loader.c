/* test_loader.c - opens modules, alone and in stacks, and closes them; and what happens if one does not open. */
#include "loader_test.h"

#include <pthread.h>

/* ---- One module ------------------------------------------------------------------------------ */

static void test_open(void)
{
    struct bench bench;

    put_config("[sink]\npath = /x\nfair = no\n");
    bench_load(&bench, FILE_NAME);
    struct instance *sink = open_good(&bench, "sink");
    CU_ASSERT_STRING_EQUAL(sink->section, "sink");
    CU_ASSERT_STRING_EQUAL(sink->path, FIXTURES "/sink.so");
    CU_ASSERT_STRING_EQUAL(sink->module.name, "sink");
    CU_ASSERT_EQUAL(sink->capabilities, MORTISE_CAP_LEASE);
    CU_ASSERT_EQUAL(sink->below.capabilities, sink->capabilities);
    CU_ASSERT_PTR_EQUAL(sink->below.module, &sink->module);
    CU_ASSERT_PTR_EQUAL(sink->below.ctx, sink->ctx);
    CU_ASSERT_PTR_EQUAL(bench.loader.instances, sink);
    CU_ASSERT_PTR_NOT_NULL(sink->ctx);
    CU_ASSERT_STRING_EQUAL(bench.said, "open sink /x; ");
    struct instance *ear = NULL;
    CU_ASSERT_EQUAL(loader_open(&bench.loader, "ear", NULL, MORTISE_KIND_OBSERVER, &ear, NULL),
                    MORTISE_OK);
    CU_ASSERT_PTR_EQUAL_FATAL(bench.loader.instances, ear);
    CU_ASSERT_PTR_EQUAL(ear->next, sink);
    bench_close(&bench);
    CU_ASSERT_STRING_EQUAL(bench.said, "open sink /x; close sink; ");
}

static void test_defaults(void)
{
    struct bench bench;

    setenv("MORTISE_MODULE_PATH", FIXTURES, 1);
    bench_load(&bench, "sink:/in/url?fair=no&ttl=1s");
    struct instance *sink = open_good(&bench, config_driver(bench.loader.config));
    CU_ASSERT_EQUAL(sink->capabilities, MORTISE_CAP_LEASE);
    CU_ASSERT_EQUAL(config_check_url(bench.loader.config, NULL), MORTISE_OK);
    bench_close(&bench);
    CU_ASSERT_STRING_EQUAL(bench.said, "open sink /in/url; close sink; ");
    bench_load(&bench, "/dev/null");
    sink = open_good(&bench, "sink"); /* no section: all at its defaults */
    CU_ASSERT_EQUAL(sink->capabilities, MORTISE_CAP_LEASE | MORTISE_CAP_FAIR);
    bench_close(&bench);
    unsetenv("MORTISE_MODULE_PATH");
}

static void test_instances(void)
{
    struct bench bench;

    put_config("[sink:a]\npath = A\n[sink:b]\npath = B\n");
    bench_load(&bench, FILE_NAME);
    open_good(&bench, "sink:a");
    open_good(&bench, "sink:b");
    bench_close(&bench);
    CU_ASSERT_STRING_EQUAL(bench.said,
                           "open sink:a A; open sink:b B; close sink:b; close sink:a; ");
    open_bad(FILE_NAME, "sink:c", 0, MORTISE_CONFIG, "mortise.conf: there is no section [sink:c]");
    open_bad("sink:/x", "sink:c", 0, MORTISE_CONFIG, "sink:/x: there is no section [sink:c]");
}

/* A URL may stand where a section is to be named, or come from a variable: its password is not shown. */
static void test_url_as_section(void)
{
    static const char *const drivers[] = {"sink://u:SECRET@h", "${SINK_URL}", "sink:/p?x=SECRET"};
    static const char wanted[] =
        "mortise.conf: there is no section [sink:...]; if that is a URL, give it to "
        "mortise_open(), or its parts in a section of their own";
    char text[256];

    setenv("SINK_URL", "sink://:SECRET@h", 1);
    for (size_t i = 0; i < 3; i++) {
        snprintf(text, sizeof(text), "driver = %s\n[layer]\nbelow = %s\n", drivers[i], drivers[i]);
        put_config(text);
        struct config *config = load_good(FILE_NAME);
        open_bad(FILE_NAME, config_driver(config), 0, MORTISE_CONFIG, wanted);
        open_bad(FILE_NAME, "layer", 0, MORTISE_CONFIG, wanted);
        config_free(config);
    }
    unsetenv("SINK_URL");
    put_config("");
    open_bad(
        FILE_NAME, "host=db password=SECRET", 0, MORTISE_CONFIG,
        "mortise.conf: bad module name \"host=\"...: expected 1 to 31 letters, digits, '_', '-' "
        "and '+'");
    open_bad(FILE_NAME, "sink:host=db password=SECRET", 0, MORTISE_CONFIG, wanted);
    open_bad(FILE_NAME, "//u:SECRET@h", 0, MORTISE_CONFIG,
             "mortise.conf: there is no section [:...]; if that is a URL, give it to "
             "mortise_open(), or its parts in a section of their own");
}

/* A link to a module's file is another name of it: it reads the section of its own. */
static void test_alias(void)
{
    struct bench bench;
    char link_path[128], text[512];

    mkdir("links", 0755);
    snprintf(link_path, sizeof(link_path), "%s/links/drain.so", test_folder);
    CU_ASSERT_EQUAL(symlink(FIXTURES "/sink.so", link_path), 0);
    snprintf(text, sizeof(text), "[mortise]\nmodule_path = %s/links\n[sink]\npath = own\n",
             test_folder);
    put(FILE_NAME, text);
    bench_load(&bench, FILE_NAME);
    CU_ASSERT_STRING_EQUAL(open_good(&bench, "drain")->section, "sink");
    bench_close(&bench);
    CU_ASSERT_STRING_EQUAL(bench.said, "open sink own; close sink; ");
    snprintf(text + strlen(text), sizeof(text) - strlen(text),
             "[drain]\npath = link\n[drain:x]\npath = x\n");
    put(FILE_NAME, text);
    bench_load(&bench, FILE_NAME);
    CU_ASSERT_STRING_EQUAL(open_good(&bench, "drain")->section, "drain");
    CU_ASSERT_STRING_EQUAL(open_good(&bench, "drain:x")->section, "drain:x");
    bench_close(&bench);
    snprintf(text, sizeof(text), "%s/links", test_folder);
    setenv("MORTISE_MODULE_PATH", text, 1);
    bench_load(&bench, "drain:/p");
    CU_ASSERT_STRING_EQUAL(open_good(&bench, "drain")->section, "sink");
    bench_close(&bench);
    CU_ASSERT_STRING_EQUAL(bench.said, "open sink /p; close sink; ");
    unsetenv("MORTISE_MODULE_PATH");
}

static void test_bad_values(void)
{
    put_config("[sink]\npaht = /x\n");
    open_bad(FILE_NAME, "sink", 0, MORTISE_CONFIG,
             "mortise.conf:4: [sink] unknown key \"paht\" (did you mean \"path\"?)");
    put_config("[ear]\npath = /x\n");
    open_bad(FILE_NAME, "ear", 0, MORTISE_CONFIG, "mortise.conf:4: [ear] unknown key \"path\"");
    put_config("[layer]\n");
    open_bad(FILE_NAME, "layer", 0, MORTISE_CONFIG,
             "mortise.conf: [layer] below is missing (the section below)");
    put_config("[sinc]\npath = /x\n");
    open_bad(FILE_NAME, "sink", 0, MORTISE_CONFIG,
             "mortise.conf:3: unknown section [sinc] (did you mean \"sink\"?)");
}

static void test_open_fails(void)
{
    char longest[sizeof(((mortise_error *)NULL)->message)] = "";
    put_config("[sink]\nfail = told\n");
    mortise_error error =
        open_bad(FILE_NAME, "sink", 0, MORTISE_UNREACHABLE, "the sink is clogged");
    CU_ASSERT_EQUAL(error.native, 42);
    CU_ASSERT(error.retryable);
    CU_ASSERT_STRING_EQUAL(error.driver, "sink");
    put_config("[sink]\nfail = silent\n");
    error = open_bad(FILE_NAME, "sink", 0, MORTISE_UNREACHABLE,
                     "[sink] did not open: the backend cannot be reached");
    CU_ASSERT_STRING_EQUAL(error.driver, "sink");
    put_config("[sink]\nfail = wild\n");
    open_bad(FILE_NAME, "sink", 0, MORTISE_BACKEND,
             "[sink] did not open: the backend refused the request");
    memset(longest, 'x', sizeof(longest) - 1); /* what has no end is cut where the room ends */
    put_config("[sink]\nfail = endless\n");
    open_bad(FILE_NAME, "sink", 0, MORTISE_UNREACHABLE, longest);
}

static void test_kinds(void)
{
    put_config("");
    open_bad(FILE_NAME, "ear", MORTISE_KIND_DRIVER, MORTISE_CONFIG,
             "mortise.conf: [ear] is of the kind observer, expected driver (" FIXTURES "/ear.so)");
    open_bad(FILE_NAME, "sink", MORTISE_KIND_OBSERVER, MORTISE_CONFIG,
             "mortise.conf: [sink] is of the kind driver, expected observer (" FIXTURES
             "/sink.so)");
}

/* ---- Stacks ---------------------------------------------------------------------------------- */

static void test_stack(void)
{
    struct bench bench;

    put_config("[layer]\nbelow = sink\nsecond = sink:b\n[sink:b]\npath = b\n");
    bench_load(&bench, FILE_NAME);
    struct instance *top = open_good(&bench, "layer");
    CU_ASSERT_PTR_EQUAL(bench.loader.instances, top); /* closed before what is below it */
    CU_ASSERT_PTR_NULL(top->above);
    CU_ASSERT_PTR_EQUAL(top->next->above, top);
    CU_ASSERT_PTR_EQUAL(top->next->next->above, top);
    CU_ASSERT_STRING_EQUAL(top->next->below.default_namespace, "drain:");
    CU_ASSERT_STRING_EQUAL(top->below.default_namespace, "drain:"); /* of the one below */
    bench_close(&bench);
    CU_ASSERT_STRING_EQUAL(bench.said, "open sink -; open sink:b b; open layer over sink 9; "
                                       "close layer; close sink:b; close sink; ");
}

static void expect_said(const char *section, const char *said)
{
    struct bench bench;
    struct instance *instance;

    bench_load(&bench, FILE_NAME);
    CU_ASSERT_NOT_EQUAL(loader_open(&bench.loader, section, NULL, 0, &instance, NULL), MORTISE_OK);
    CU_ASSERT_STRING_EQUAL(bench.said, said);
    bench_close(&bench);
}

static void test_stack_fails(void)
{
    put_config("[layer]\nbelow = sink\nsecond = sink:b\nfail = yes\n[sink:b]\n");
    mortise_error error =
        open_bad(FILE_NAME, "layer", 0, MORTISE_BACKEND, "the layer does not stick");
    CU_ASSERT_STRING_EQUAL(error.driver, "layer");
    expect_said("layer", "open sink -; open sink:b -; close sink:b; close sink; ");
    put_config("[layer]\nbelow = sink\nsecond = sink:b\n[sink:b]\nfail = told\n");
    error = open_bad(FILE_NAME, "layer", 0, MORTISE_UNREACHABLE, "the sink is clogged");
    CU_ASSERT_STRING_EQUAL(error.driver, "sink"); /* the deeper account stays */
    expect_said("layer", "open sink -; close sink; ");
    put_config("[layer]\nbelow = ear\n");
    open_bad(FILE_NAME, "layer", 0, MORTISE_CONFIG,
             "mortise.conf: [ear] is an observer, which cannot be below [layer] (" FIXTURES
             "/ear.so)");
}

/* What was open before a failure stays open. */
static void test_failure_beside(void)
{
    struct bench bench;
    struct instance *instance;

    put_config("[layer]\nbelow = sink:b\nfail = yes\n[sink:b]\n[sink:a]\n");
    bench_load(&bench, FILE_NAME);
    struct instance *first = open_good(&bench, "sink:a");
    CU_ASSERT_EQUAL(loader_open(&bench.loader, "layer", NULL, 0, &instance, NULL), MORTISE_BACKEND);
    CU_ASSERT_PTR_EQUAL(bench.loader.instances, first);
    bench_close(&bench);
    CU_ASSERT_STRING_EQUAL(bench.said,
                           "open sink:a -; open sink:b -; close sink:b; close sink:a; ");
}

static void test_cycles(void)
{
    char text[1024] = "";
    size_t used = 0;
    struct bench bench;

    put_config("[layer]\nbelow = layer\n");
    open_bad(FILE_NAME, "layer", 0, MORTISE_CONFIG,
             "mortise.conf: section [layer] is being opened already: it cannot be below itself");
    put_config("[layer:a]\nbelow = layer:b\n[layer:b]\nbelow = layer:a\n");
    open_bad(FILE_NAME, "layer:a", 0, MORTISE_CONFIG,
             "mortise.conf: section [layer:a] is being opened already: it cannot be below "
             "itself");
    for (int i = 1; i <= 8; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "[layer:%d]\nbelow = layer:%d\n",
                                 i, i + 1);
    snprintf(text + used, sizeof(text) - used, "[layer:9]\nbelow = sink\n");
    put_config(text);
    open_bad(FILE_NAME, "layer:1", 0, MORTISE_CONFIG,
             "mortise.conf: [layer:9] would be more than 8 modules deep");
    snprintf(text + used, sizeof(text) - used, "[layer:9]\nbelow = sink://u:SECRET@h\n");
    put_config(text);
    open_bad(FILE_NAME, "layer:2", 0, MORTISE_CONFIG,
             "mortise.conf: there is no section [sink:...]; if that is a URL, give it to "
             "mortise_open(), or its parts in a section of their own");
    snprintf(text + used, sizeof(text) - used, "[layer:9]\nbelow = sink\n");
    put_config(text);
    bench_load(&bench, FILE_NAME);
    open_good(&bench, "layer:3"); /* seven layers and the sink are eight */
    bench_close(&bench);
}

/* ---- Threads --------------------------------------------------------------------------------- */

static void *open_often(void *argument)
{
    bool *good = argument;

    for (int i = 0; i < 50 && *good; i++) {
        struct bench bench = {.loader = {.client_id = "", .note = ""}};
        struct instance *instance;
        bench.loader.host_prepare = bench_prepare;
        bench.loader.argument = &bench;
        *good = config_load("threads.conf", &bench.loader.config, NULL) == MORTISE_OK &&
                loader_open(&bench.loader, "layer", NULL, 0, &instance, NULL) == MORTISE_OK;
        mortise_error error;
        if (loader_open(&bench.loader, "bad_abi", NULL, 0, &instance, &error) != MORTISE_CONFIG ||
            strstr(error.message, "abi is 3") == NULL)
            *good = false;
        loader_close_all(&bench.loader);
        config_free(bench.loader.config);
    }
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[4];
    bool good[4] = {true, true, true, true};

    setenv("FIXTURES", FIXTURES, 1);
    put("threads.conf", "[mortise]\nmodule_path = ${FIXTURES}\n[layer]\nbelow = sink\n");
    for (size_t i = 0; i < 4; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, open_often, &good[i]), 0);
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CU_ASSERT(good[i]);
    }
}

/* What is said of sections when `section` is opened. */
static void found(const char *sections, const char *section, const char *wanted)
{
    struct bench bench;
    char text[600] = "", small[16] = "";

    put_config(sections);
    bench_load(&bench, FILE_NAME);
    open_good(&bench, section);
    loader_findings(&bench.loader, text, sizeof(text));
    CU_ASSERT_STRING_EQUAL(text, wanted);
    loader_findings(&bench.loader, small, sizeof(small));
    CU_ASSERT_EQUAL(strncmp(small, wanted, sizeof(small) - 1), 0);
    loader_findings(&bench.loader, small, 0);
    bench_close(&bench);
}

/* A section that the module has not, and another one that may be meant. Several programs may share a file. */
static void test_findings(void)
{
    static const char said[] =
        " | note: the config has no section [sink], so its defaults are used, and nothing reads "
        "[sink-prod], which has \"servers\"; if that is the one, call it [sink]";

    found("[other]\npath = x\n[sink-prod]\nservers = a:1\n[sink-old]\nservers = b\n", "sink", said);
    found("[layer]\nbelow = sink\n[sink-prod]\nservers = a:1\n", "layer", said);
    found("[sink]\n[sink-prod]\nservers = a:1\n", "sink", "");
    found("[sink:prod]\nservers = a:1\n[sink-prod]\nservers = b\n", "sink:prod", "");
    found("[sink:prod]\nservers = a:1\n[layer]\nservers = a:1\n[layer:2]\nservers = b\n", "sink",
          "");
    found("[sink-prod]\npath = /p\n", "sink", "");
    found("", "sink", "");
}

int main(void)
{
    CU_TestInfo tests[] = {{"a module", test_open},
                           {"sections that are not there", test_findings},
                           {"without a section", test_defaults},
                           {"two instances", test_instances},
                           {"a URL as a section", test_url_as_section},
                           {"another name", test_alias},
                           {"bad values", test_bad_values},
                           {"open fails", test_open_fails},
                           {"kinds", test_kinds},
                           {"a stack", test_stack},
                           {"a stack fails", test_stack_fails},
                           {"a failure beside", test_failure_beside},
                           {"cycles and depth", test_cycles},
                           {"many threads", test_threads},
                           CU_TEST_INFO_NULL};
    return run_tests("loader", tests);
}
