/* test_zookeeper_names.c - folders, nodes and queues of the ZooKeeper driver without a server: every byte is encoded
 * and decoded, nodes of other clients, numbers at the end of their range, numbers given twice. */
#include "queue.h"
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- folders ----------------------------------------------------------------------------------- */

static void there_and_back(const char *name, size_t name_len, const char *folder_wanted)
{
    char folder[FOLDER_MAX], name_again[MORTISE_NAME_MAX];
    folder_of_name(name, name_len, true, folder);
    if (folder_wanted != NULL)
        CU_ASSERT_STRING_EQUAL(folder, folder_wanted);
    CU_ASSERT_EQUAL(name_of_folder(folder, name_again, sizeof(name_again)), name_len);
    CU_ASSERT_EQUAL(memcmp(name, name_again, name_len), 0);
    CU_ASSERT(strlen(folder) > 0 && strchr(folder, '/') == NULL);
    CU_ASSERT(strcmp(folder, ".") != 0 && strcmp(folder, "..") != 0);
    for (const char *c = folder; *c != '\0'; c++)
        CU_ASSERT(*c > ' ' && *c < 0x7f);
}

static void test_folders(void)
{
    char all[MORTISE_NAME_MAX];
    there_and_back("nightly", 7, "nightly");
    there_and_back("a/b", 3, "a%2Fb");
    there_and_back("100%", 4, "100%25");
    there_and_back(".", 1, "%2E");
    there_and_back("..", 2, "%2E%2E");
    there_and_back("...", 3, "...");
    there_and_back(".a", 2, ".a");
    there_and_back("zookeeper", 9, "%7Aookeeper");
    there_and_back("zookeepers", 10, "zookeepers");
    there_and_back("\xff\x01 ", 3, "%FF%01%20");
    for (int c = 1; c < 256; c++) {
        char name = (char)c;
        there_and_back(&name, 1, NULL);
        for (size_t i = 0; i < sizeof(all); i++)
            all[i] = (char)(c + (int)i == 256 ? 1 : c + (int)i);
        for (size_t i = 0; i < sizeof(all); i++)
            all[i] = all[i] == '\0' ? 'x' : all[i];
        there_and_back(all, sizeof(all), NULL);
    }
}

static void test_folders_of_others(void)
{
    char name[MORTISE_NAME_MAX], folder[FOLDER_MAX];
    CU_ASSERT_EQUAL(name_of_folder("%sessions", name, sizeof(name)), 0);
    CU_ASSERT_EQUAL(name_of_folder("%tokens", name, sizeof(name)), 0);
    CU_ASSERT_EQUAL(name_of_folder("%records", name, sizeof(name)), 0);
    CU_ASSERT_EQUAL(name_of_folder("%", name, sizeof(name)), 0);
    CU_ASSERT_EQUAL(name_of_folder("a%4", name, sizeof(name)), 0);
    CU_ASSERT_EQUAL(name_of_folder("%00", name, sizeof(name)), 0);
    memset(folder, 'n', sizeof(folder));
    folder[MORTISE_NAME_MAX + 1] = '\0';
    CU_ASSERT_EQUAL(name_of_folder(folder, name, sizeof(name)), 0);
}

/* ---- nodes ------------------------------------------------------------------------------------- */

static const mortise_grant_id grant = {
    {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0, 1, 2, 3, 4, 5, 6, 0xff}};

/* What each style writes, and what is read again of it. */
static void test_nodes(void)
{
    static const struct {
        enum node_style style;
        struct node_kind kind;
        unsigned session;
        const char *prefix;
    } cases[] = {
        {STYLE_CURATOR, {0}, 3, "_c_01234567-89ab-cdef-0001-0203040506ff-3-mortise-lock-"},
        {STYLE_CURATOR,
         {true, 0, false},
         3,
         "_c_01234567-89ab-cdef-0001-0203040506ff-3-s0-mortise-lock-"},
        {STYLE_CURATOR_RW, {0}, 3, "_c_01234567-89ab-cdef-0001-0203040506ff-3-mortise__WRIT__"},
        {STYLE_CURATOR_RW,
         {true, UINT32_MAX, false},
         4294967295,
         "_c_01234567-89ab-cdef-0001-0203040506ff-4294967295-s4294967295-mortise__READ__"},
        {STYLE_KAZOO,
         {0},
         4294967295,
         "0123456789abcdef00010203040506ff__4294967295__mortise__lock__"},
        {STYLE_KAZOO,
         {true, 7, false},
         1,
         "0123456789abcdef00010203040506ff__1__s7__mortise__lock__"},
        {STYLE_KAZOO_RW, {0}, 1, "0123456789abcdef00010203040506ff__1__mortise__lock__"},
        {STYLE_KAZOO_RW,
         {true, 0, false},
         1,
         "0123456789abcdef00010203040506ff__1__s0__mortise__rlock__"},
        {STYLE_CURATOR_SEMAPHORE,
         {true, 4, false},
         3,
         "_c_01234567-89ab-cdef-0001-0203040506ff-3-s4-mortise-lease-"},
        {STYLE_CURATOR_SEMAPHORE,
         {0},
         3,
         "_c_01234567-89ab-cdef-0001-0203040506ff-3-mortise-lease-"},
        {STYLE_KAZOO_SEMAPHORE,
         {true, 4, false},
         1,
         "0123456789abcdef00010203040506ff__1__s4__mortise__lease__"},
        {STYLE_KAZOO_SEMAPHORE, {0}, 1, "0123456789abcdef00010203040506ff__1__mortise__lease__"},
    };
    char node[NODE_MAX + 16], hex[33];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct contender contender;
        node_prefix(cases[i].style, cases[i].kind, &grant, cases[i].session, node);
        CU_ASSERT_STRING_EQUAL(node, cases[i].prefix);
        CU_ASSERT(strlen(node) + 11 < NODE_MAX);
        CU_ASSERT(node_owner(node, hex));
        CU_ASSERT_STRING_EQUAL(hex, "0123456789abcdef00010203040506ff");
        size_t length = strlen(node);
        snprintf(node + length, sizeof(node) - length, "-000000012");
        CU_ASSERT(node_read(node, cases[i].style, &contender));
        CU_ASSERT_EQUAL(contender.kin, KIN_OWN);
        CU_ASSERT_EQUAL(contender.number, -12);
        CU_ASSERT_EQUAL(contender.kind.shared, cases[i].kind.shared);
        CU_ASSERT_EQUAL(contender.kind.permits, cases[i].kind.permits);
        enum node_style other = cases[i].style < STYLE_CURATOR_SEMAPHORE
                                    ? cases[i].style ^ 2
                                    : cases[i].style - STYLE_CURATOR_SEMAPHORE;
        CU_ASSERT_FALSE(contender.kind.any_permits);
        CU_ASSERT(node_read(node, other, &contender));
        bool either = cases[i].style == STYLE_KAZOO_RW || cases[i].style == STYLE_KAZOO;
        CU_ASSERT_EQUAL(contender.kin, either && !cases[i].kind.shared ? KIN_OWN : KIN_MORTISE);
    }
    CU_ASSERT_FALSE(node_owner("lock-0000000001", hex));
}

static int32_t number(const char *node)
{
    struct contender contender;
    return node_read(node, STYLE_CURATOR, &contender) ? contender.number : -12345;
}

static void test_numbers(void)
{
    CU_ASSERT_EQUAL(number("_c_01234567-89ab-cdef-0001-0203040506ff-lock-0000000007"), 7);
    CU_ASSERT_EQUAL(number("0123456789abcdef00010203040506ff__lock__0000000008"), 8);
    CU_ASSERT_EQUAL(number("lock-0000000009"), 9);
    CU_ASSERT_EQUAL(number("x-lock-2147483647"), INT32_MAX);
    CU_ASSERT_EQUAL(number("x-lock--2147483648"), INT32_MIN);
    CU_ASSERT_EQUAL(number("x__lock__-000000001"), -1);
    CU_ASSERT_EQUAL(number("x-lock-2147483648"), -12345);
    CU_ASSERT_EQUAL(number("x-lock-99999999999"), -12345);
    CU_ASSERT_EQUAL(number("x-lock-"), -12345);
    CU_ASSERT_EQUAL(number("x-lock--"), -12345);
    CU_ASSERT_EQUAL(number("x-lock-12a"), -12345);
    CU_ASSERT_EQUAL(number("x__READ__0000000001"), 1);
    CU_ASSERT_EQUAL(number("x__rlock__0000000002"), 2);
    CU_ASSERT_EQUAL(number("x__WRIT__-2147483648"), INT32_MIN);
    CU_ASSERT_EQUAL(number("0000000001"), -12345);
    CU_ASSERT_EQUAL(number("block-0000000001"), -12345);
    CU_ASSERT_EQUAL(number(""), -12345);
}

/* kazoo#730: what the numbers say over the end, for servers that stay there and for those that count on. */
static void test_number_overflow_kazoo_730(void)
{
    static const struct {
        int32_t a, b;
        enum number_order order;
    } cases[] = {
        {1, 2, NUMBER_BEFORE},
        {2, 1, NUMBER_AFTER},
        {2, 2, NUMBER_UNDECIDED},
        {INT32_MAX - 1, INT32_MAX, NUMBER_BEFORE},
        {INT32_MAX, INT32_MAX, NUMBER_UNDECIDED},
        {INT32_MAX, INT32_MIN, NUMBER_UNDECIDED}, /* in both orders */
        {INT32_MIN, INT32_MAX, NUMBER_UNDECIDED},
        {INT32_MIN, INT32_MIN + 1, NUMBER_UNDECIDED},
        {INT32_MAX - 5, INT32_MIN + 5, NUMBER_BEFORE},
        {INT32_MIN + 5, INT32_MAX - 5, NUMBER_AFTER},
        {-1, 0, NUMBER_UNDECIDED}, /* a server before 3.6 gives 0 after -1 */
        {0, -1, NUMBER_UNDECIDED},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CU_ASSERT_EQUAL(number_compare(cases[i].a, cases[i].b), cases[i].order);
}

/* ---- queues ------------------------------------------------------------------------------------ */

static struct children *make(const char *const *names, size_t count)
{
    struct children *children = malloc(sizeof(*children) + count * sizeof(char *));
    children->count = count;
    for (size_t i = 0; i < count; i++)
        children->names[i] = (char *)(uintptr_t)names[i];
    return children;
}

static struct queue_view look_past(const struct children *children, const char *own,
                                   const char *passed)
{
    struct seeker seeker = {.node = own, .passed = passed, .opened = ""};
    return queue_look(children, &seeker);
}

static struct queue_view look(struct children *children, const char *own)
{
    return look_past(children, own, "");
}

static void test_queues(void)
{
    static const char *const names[] = {
        "a-lock-0000000012", "b-lock-0000000009", "config",
        "lock-0000000011",   "c-0000000001",      "d-lock-0000000010"};
    struct children *children = make(names, 6);
    struct queue_view view = look(children, "a-lock-0000000012");
    CU_ASSERT_STRING_EQUAL(view.first, "b-lock-0000000009");
    CU_ASSERT_EQUAL(view.count, 4);
    CU_ASSERT(view.found);
    CU_ASSERT_STRING_EQUAL(view.before, "lock-0000000011");
    CU_ASSERT_STRING_EQUAL(look(children, "d-lock-0000000010").before, "b-lock-0000000009");
    view = look(children, "b-lock-0000000009");
    CU_ASSERT(view.found);
    CU_ASSERT_PTR_NULL(view.before);
    CU_ASSERT_FALSE(look(children, "e-lock-0000000008").found);
    view = look(children, "");
    CU_ASSERT_FALSE(view.found);
    CU_ASSERT_STRING_EQUAL(view.before, names[0]); /* as if ours came last */
    free(children);
    children = make(names, 0);
    view = look(children, "a-lock-0000000012");
    CU_ASSERT(!view.found && view.first == NULL && view.foreign == NULL && view.count == 0);
    free(children);
}

/* What a server gave at the end, in the order in which it did: d, b, c, a, e. By number only d is before the others. */
static void test_queue_over_the_end_kazoo_730(void)
{
    static const char *const names[] = {"a-lock--2147483647", "b-lock-2147483647",
                                        "c-lock--2147483648", "d-lock-2147483646",
                                        "e-lock-2147483647"};
    struct children *children = make(names, 5);
    CU_ASSERT_STRING_EQUAL(look(children, "").first, names[3]);
    CU_ASSERT_PTR_NULL(look(children, names[3]).before);
    CU_ASSERT_STRING_EQUAL(look(children, names[0]).before, names[1]);
    CU_ASSERT_STRING_EQUAL(look(children, names[2]).before, names[0]);
    CU_ASSERT_STRING_EQUAL(look(children, names[1]).before, names[0]);
    struct queue_view view = look_past(children, names[1], names[0]);
    CU_ASSERT_STRING_EQUAL(view.before, names[2]);
    view = look_past(children, names[1], names[2]);
    CU_ASSERT_STRING_EQUAL(view.before, names[4]);
    view = look_past(children, names[1], names[4]);
    CU_ASSERT_STRING_EQUAL(view.before, names[3]);
    free(children);
    children = make(names, 3);
    view = look_past(children, names[1], names[2]);
    CU_ASSERT_PTR_NULL(view.before);
    CU_ASSERT_STRING_EQUAL(view.first, names[1]); /* ours, because it has passed the others */
    free(children);
}

/* Nodes with the same number wait for each other, in the order of their names, until one has passed those that came
 * later. */
static void test_number_given_twice(void)
{
    static const char *const names[] = {"c-lock-2147483647", "a-lock-2147483647",
                                        "d-lock-2147483646", "b-lock-2147483647"};
    struct children *children = make(names, 4);
    CU_ASSERT_STRING_EQUAL(look(children, names[1]).before, names[3]);
    CU_ASSERT_STRING_EQUAL(look(children, names[0]).before, names[1]);
    struct queue_view view = look_past(children, names[0], names[1]);
    CU_ASSERT_STRING_EQUAL(view.before, names[3]);
    view = look_past(children, names[0], names[3]);
    CU_ASSERT_STRING_EQUAL(view.before, names[2]);
    CU_ASSERT(view.found);
    CU_ASSERT_PTR_NULL(look(children, names[2]).before);
    free(children);
}

/* A claim knows its node among those of other grants, other sessions and the other style. */
static void test_find(void)
{
    static const char *const names[] = {
        "_c_01234567-89ab-cdef-0001-0203040506ff-11-mortise-lock-0000000001",
        "_c_01234567-89ab-cdef-0001-0203040506fe-1-mortise-lock-0000000002",
        "0123456789abcdef00010203040506ff__1__mortise__lock__0000000003",
        "_c_01234567-89ab-cdef-0001-0203040506ff-1-mortise-lock-0000000004"};
    const struct node_kind exclusive = {0};
    char prefix[NODE_MAX];
    struct children *children = make(names, 4);
    node_prefix(STYLE_CURATOR, exclusive, &grant, 1, prefix);
    CU_ASSERT_EQUAL(queue_find(children, prefix), names[3]);
    node_prefix(STYLE_KAZOO, exclusive, &grant, 1, prefix);
    CU_ASSERT_EQUAL(queue_find(children, prefix), names[2]);
    node_prefix(STYLE_CURATOR, exclusive, &grant, 2, prefix);
    CU_ASSERT_PTR_NULL(queue_find(children, prefix));
    free(children);
}

#define CURATOR_UUID "_c_01234567-89ab-cdef-0001-0203040506ff-"
#define KAZOO_UUID "0123456789abcdef00010203040506ff"

/* Of each style: O own, S another style, M another style and Mortise's, X another recipe, - none. */
static void test_kin(void)
{
    static const struct {
        const char *node, *kins; /* in the order of enum node_style */
    } cases[] = {
        {CURATOR_UUID "lock-0000000007", "OSSSSS"},
        {"lock-0000000007", "OSSSSS"},
        {KAZOO_UUID "__lock__0000000008", "SOSOSS"},
        {KAZOO_UUID "__rlock__0000000008", "SOSOSS"},
        {CURATOR_UUID "__READ__0000000001", "SSOSSS"},
        {CURATOR_UUID "__WRIT__-000000001", "SSOSSS"},
        {CURATOR_UUID "mortise-lock-0000000007", "OMMMMM"},
        {CURATOR_UUID "1-mortise-lock-0000000007", "OMMMMM"},
        {CURATOR_UUID "1-s0-mortise-lock-0000000007", "OMMMMM"},
        {CURATOR_UUID "1-mortise__WRIT__0000000007", "MMOMMM"},
        {CURATOR_UUID "1-s9-mortise__READ__0000000007", "MMOMMM"},
        {KAZOO_UUID "__mortise__lock__-000000007", "MOMOMM"},
        {KAZOO_UUID "__1__s0__mortise__lock__0000000007", "MOMMMM"},
        {KAZOO_UUID "__1__s0__mortise__rlock__0000000007", "MMMOMM"},
        {KAZOO_UUID "__mortise__0000000008", "XXXXXX"},
        {"mortise-x-lock-0000000008", "OSSSSS"},
        {"-lock-0000000008", "OSSSSS"},
        {"x-72057594037927936-2147483647", "XXXXXX"},
        {"x-1--2147483648", "XXXXXX"},
        {"0000000001", "XXXXXX"},
        {"leases", "XXXXXX"}, /* the folders of Curator's semaphores, */
        {"locks", "XXXXXX"},
        {"__lock__", "XXXXXX"}, /* that of kazoo's, and one of its leases */
        {KAZOO_UUID, "XXXXXO"},
        {CURATOR_UUID "lease-0000000007", "SSSSOS"},
        {"lease-0000000007", "SSSSOS"},
        {CURATOR_UUID "1-mortise-lease-0000000007", "MMMMOM"},
        {CURATOR_UUID "1-s4-mortise-lease-0000000007", "MMMMOM"},
        {KAZOO_UUID "__1__s4__mortise__lease__0000000007", "MMMMMO"},
        {KAZOO_UUID "__1__mortise__lease__0000000007", "MMMMMO"},
        {"lease", "------"},
        {"2026-11-23", "------"},
        {CURATOR_UUID "lock-", "------"},
        {"", "------"},
    };
    static const char letters[] = {[KIN_OWN] = 'O',
                                   [KIN_STYLE] = 'S',
                                   [KIN_MORTISE] = 'M',
                                   [KIN_OTHER] = 'X',
                                   [KIN_NONE] = '-'};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (enum node_style style = 0; style < STYLE_COUNT; style++) {
            struct contender contender;
            node_read(cases[i].node, style, &contender);
            CU_ASSERT_EQUAL(letters[contender.kin], cases[i].kins[style]);
        }
}

/* The table of drivers/zookeeper/queue.h, STYLES. c and k: nodes of Curator's and kazoo's clients; C and K:
 * Mortise's with that style; the numbers are their places. */
static void test_two_styles(void)
{
    static const struct {
        const char *folder, *curator, *kazoo; /* whom a client of that style is refused for */
    } cases[] = {
        {"", "", ""},         {"C1", "", "C1"},     {"K1", "K1", ""},   {"c1", "", "c1"},
        {"k1", "k1", ""},     {"C1K2", "", "C1"},   {"K1C2", "K1", ""}, {"K2C1", "", "C1"},
        {"C1k2", "k2", "C1"}, {"K1c2", "K1", "c2"}, {"c1K2", "", "c1"}, {"C1K2K3C4", "", "C1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char texts[4][80], names[4][3];
        const char *pointers[4], *found;
        size_t count = strlen(cases[i].folder) / 2;
        for (size_t k = 0; k < count; k++) {
            char kind = cases[i].folder[2 * k];
            snprintf(names[k], sizeof(names[k]), "%c%c", kind, cases[i].folder[2 * k + 1]);
            snprintf(texts[k], sizeof(texts[k]),
                     kind == 'C'   ? "_c_x-mortise-lock-000000000%c"
                     : kind == 'K' ? "x__mortise__lock__000000000%c"
                     : kind == 'c' ? "_c_x-lock-000000000%c"
                                   : "x__lock__000000000%c",
                     cases[i].folder[2 * k + 1]);
            pointers[k] = texts[k];
        }
        struct children *children = make(pointers, count);
        for (enum node_style style = STYLE_CURATOR; style <= STYLE_KAZOO; style++) {
            const char *wanted = style == STYLE_CURATOR ? cases[i].curator : cases[i].kazoo;
            const char *name = "";
            struct seeker seeker = {.style = style, .node = "", .passed = "", .opened = ""};
            found = queue_look(children, &seeker).foreign;
            for (size_t k = 0; k < count; k++)
                if (found == texts[k])
                    name = names[k];
            CU_ASSERT_STRING_EQUAL(name, wanted);
        }
        free(children);
    }
}

/* ---- shared ------------------------------------------------------------------------------------------ */

/* A folder in the letters of its contenders, in their order: X exclusive, R shared, 2 to 9 shared with so many permits, o
 * exclusive and made shared, T shared of Mortise with another style. */
struct crowd {
    char texts[12][80];
    const char *pointers[12];
    struct children *children;
};

static void fill(struct crowd *crowd, const char *letters)
{
    size_t count = strlen(letters);
    for (size_t i = 0; i < count; i++) {
        char shared[8] = "";
        if (letters[i] == 'T') {
            snprintf(crowd->texts[i], sizeof(crowd->texts[i]), "u__1__s0__mortise__lock__%010zu",
                     i);
        } else {
            if (letters[i] == 'R' || (letters[i] >= '2' && letters[i] <= '9'))
                snprintf(shared, sizeof(shared), "s%d-", letters[i] == 'R' ? 0 : letters[i] - '0');
            snprintf(crowd->texts[i], sizeof(crowd->texts[i]), "_c_u%zu-1-%smortise-lock-%010zu",
                     9 - i, shared, i);
        }
        crowd->pointers[count - 1 - i] = crowd->texts[i];
    }
    crowd->children = make(crowd->pointers, count);
}

static int index_of(const struct crowd *crowd, const char *node)
{
    for (int i = 0; i < 12; i++)
        if (node == crowd->texts[i])
            return i;
    return -1;
}

static void test_shared(void)
{
    static const struct {
        const char *letters;
        size_t own;
        int before, other_permits;
        bool crowded;
    } cases[] = {
        {"R", 0, -1, -1, false},  {"RR", 1, -1, -1, false},  {"XR", 1, 0, -1, false},
        {"RX", 1, 0, -1, false},  {"RRRX", 3, 2, -1, false}, {"RXR", 2, 1, -1, false},
        {"XRR", 2, 0, -1, false}, {"RXXR", 3, 2, -1, false}, {"RXRXRR", 5, 3, -1, false},
        {"oR", 1, -1, -1, false}, {"oRR", 2, -1, -1, false}, {"oXR", 2, 1, -1, false},
        {"oX", 1, 0, -1, false},  {"2", 0, -1, -1, false},   {"22", 1, -1, -1, false},
        {"222", 2, 1, -1, true},  {"2222", 3, 2, -1, true},  {"2X2", 2, 1, -1, false},
        {"33X", 2, 1, -1, false}, {"23", 1, 0, 0, false},    {"R2", 1, 0, 0, false},
        {"2R", 1, 0, 0, false},   {"o2", 1, 0, 0, false},    {"2X3", 2, 1, 0, false},
        {"X23", 2, 1, -1, false}, {"232", 2, 1, -1, false},  {"99999", 4, -1, -1, false},
        {"RTR", 2, 1, -1, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct crowd crowd;
        struct contender own;
        fill(&crowd, cases[i].letters);
        struct seeker seeker = {.node = crowd.texts[cases[i].own],
                                .passed = "",
                                .opened = cases[i].letters[0] == 'o' ? crowd.texts[0] : ""};
        node_read(seeker.node, STYLE_CURATOR, &own);
        seeker.kind = own.kind;
        struct queue_view view = queue_look(crowd.children, &seeker);
        CU_ASSERT(view.found);
        CU_ASSERT_EQUAL(index_of(&crowd, view.before), cases[i].before);
        CU_ASSERT_EQUAL(index_of(&crowd, view.other_permits), cases[i].other_permits);
        CU_ASSERT_EQUAL(view.crowded, cases[i].crowded);
        free(crowd.children);
    }
}

/* The leases of a semaphore. c: one of Curator's, which does not say how many there may be; 2, 3: ours with so many permits;
 * X: ours that is to be alone. The last one looks. */
static void test_leases(void)
{
    static const struct {
        const char *letters;
        int before, other_permits;
        bool crowded;
        size_t holders;
    } cases[] = {
        {"2", -1, -1, false, 1},   {"c2", -1, -1, false, 2}, {"cc2", 1, -1, true, 2},
        {"cc3", -1, -1, false, 3}, {"c22", 1, -1, true, 2},  {"c23", 1, 1, false, 2},
        {"ccX", 1, -1, false, 2},  {"X2", 0, -1, false, 1},  {"cX", 0, -1, false, 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct crowd crowd;
        struct contender own, all[12];
        const char *letters = cases[i].letters;
        size_t count = strlen(letters);
        for (size_t k = 0; k < count; k++) {
            char permits[4] = {'s', letters[k], '-', '\0'};
            snprintf(crowd.texts[k], sizeof(crowd.texts[k]), "_c_u%zu-%s%slease-%010zu", 9 - k,
                     letters[k] == 'X' || letters[k] == 'c' ? "" : permits,
                     letters[k] == 'c' ? "" : "mortise-", k);
            crowd.pointers[count - 1 - k] = crowd.texts[k];
        }
        crowd.children = make(crowd.pointers, count);
        struct seeker seeker = {.style = STYLE_CURATOR_SEMAPHORE,
                                .node = crowd.texts[count - 1],
                                .passed = "",
                                .opened = ""};
        CU_ASSERT(node_read(seeker.node, seeker.style, &own));
        seeker.kind = own.kind;
        struct queue_view view = queue_look(crowd.children, &seeker);
        CU_ASSERT(view.found);
        CU_ASSERT_PTR_NULL(view.foreign);
        CU_ASSERT_EQUAL(index_of(&crowd, view.before), cases[i].before);
        CU_ASSERT_EQUAL(index_of(&crowd, view.other_permits), cases[i].other_permits);
        CU_ASSERT_EQUAL(view.crowded, cases[i].crowded);
        CU_ASSERT_EQUAL(queue_sort(crowd.children, seeker.style, all), count);
        CU_ASSERT_EQUAL(queue_holders(all, count), cases[i].holders);
        free(crowd.children);
    }
}

/* A claim that has no node yet would be the last. */
static void test_shared_try(void)
{
    static const struct {
        const char *letters;
        struct node_kind kind;
        int before;
    } cases[] = {
        {"", {true, 0, false}, -1},   {"R", {true, 0, false}, -1}, {"RX", {true, 0, false}, 1},
        {"RXR", {true, 0, false}, 1}, {"22", {true, 2, false}, 1}, {"22", {true, 3, false}, 1},
        {"2", {true, 2, false}, -1},  {"R", {false, 0, false}, 0}, {"", {false, 0, false}, -1},
        {"333", {true, 3, false}, 2},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct crowd crowd;
        fill(&crowd, cases[i].letters);
        struct seeker seeker = {.kind = cases[i].kind, .node = "", .passed = "", .opened = ""};
        struct queue_view view = queue_look(crowd.children, &seeker);
        CU_ASSERT_EQUAL(index_of(&crowd, view.before), cases[i].before);
        free(crowd.children);
    }
}

/* With P permits, a claim watches the P before it: whichever ends, the claims that may go on are told. */
static void test_nearest(void)
{
    struct contender all[12];
    struct crowd crowd;
    fill(&crowd, "333333");
    struct seeker seeker = {
        .kind = {true, 3, false}, .node = crowd.texts[4], .passed = "", .opened = ""};
    CU_ASSERT_EQUAL_FATAL(queue_nearest(crowd.children, &seeker, 3, all), 3);
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(index_of(&crowd, all[i].node), i + 1);
    CU_ASSERT_EQUAL(queue_nearest(crowd.children, &seeker, 9, all), 4);
    free(crowd.children);
}

static void test_holders(void)
{
    static const struct {
        const char *letters;
        size_t holders;
    } cases[] = {{"", 0},   {"X", 1},   {"XR", 1},  {"R", 1},   {"RR", 2},  {"RRXR", 2},
                 {"22", 2}, {"222", 2}, {"2X2", 1}, {"232", 1}, {"2RR", 1}, {"RR2", 2}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct contender all[12];
        struct crowd crowd;
        fill(&crowd, cases[i].letters);
        size_t count = queue_sort(crowd.children, STYLE_CURATOR, all);
        CU_ASSERT_EQUAL(count, strlen(cases[i].letters));
        for (size_t k = 0; k < count; k++)
            CU_ASSERT_EQUAL(index_of(&crowd, all[k].node), (int)k);
        CU_ASSERT_EQUAL(queue_holders(all, count), cases[i].holders);
        free(crowd.children);
    }
    /* CURATOR-621: a writer of Curator makes itself a reader at the same place, before it is a writer no more. */
    static const char *const names[] = {CURATOR_UUID "__READ__0000000005",
                                        CURATOR_UUID "__WRIT__0000000005"};
    struct children *children = make(names, 2);
    struct contender both[2];
    CU_ASSERT_EQUAL(queue_sort(children, STYLE_CURATOR_RW, both), 2);
    CU_ASSERT_EQUAL(both[0].node, names[1]);
    CU_ASSERT_EQUAL(queue_holders(both, 2), 1);
    free(children);
}

/* Of a semaphore of kazoo. k: a lease of its own, without a number; X: ours that is exclusive by its name; R, 2: ours that are
 * shared, with any number of permits and with two. */
static void test_to_read(void)
{
    static const struct {
        const char *letters;
        size_t now, more;
    } cases[] = {{"", 0, 0},    {"k", 1, 0},   {"kk", 2, 0},   {"X", 1, 0},  {"XR", 1, 1},
                 {"X2", 1, 0},  {"kX", 2, 0},  {"kkX", 3, 0},  {"kR", 2, 0}, {"kXRR", 2, 2},
                 {"kX2", 2, 0}, {"kXX", 2, 0}, {"kkXRX", 3, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct contender all[12];
        struct crowd crowd;
        const char *letters = cases[i].letters;
        size_t count = strlen(letters);
        for (size_t k = 0; k < count; k++) {
            char *text = crowd.texts[k], permits[8] = "";
            if (letters[k] == 'k') {
                snprintf(text, sizeof(crowd.texts[k]), "%032zx", k + 1);
            } else {
                if (letters[k] != 'X')
                    snprintf(permits, sizeof(permits), "__s%d", letters[k] == 'R' ? 0 : 2);
                snprintf(text, sizeof(crowd.texts[k]), "u__1%s__mortise__lease__%010zu", permits,
                         k + 1);
            }
            crowd.pointers[count - 1 - k] = text;
        }
        crowd.children = make(crowd.pointers, count);
        CU_ASSERT_EQUAL_FATAL(queue_sort(crowd.children, STYLE_KAZOO_SEMAPHORE, all), count);
        struct queue_reads reads = queue_to_read(all, count);
        CU_ASSERT_EQUAL(reads.now, cases[i].now);
        CU_ASSERT_EQUAL(reads.more, cases[i].more);
        free(crowd.children);
    }
}

static CU_TestInfo tests[] = {
    {"folders", test_folders},
    {"folders of others", test_folders_of_others},
    {"nodes", test_nodes},
    {"numbers", test_numbers},
    {"nodes of other recipes", test_kin},
    {"two styles", test_two_styles},
    {"kazoo#730: numbers over the end", test_number_overflow_kazoo_730},
    {"queues", test_queues},
    {"kazoo#730: a queue over the end", test_queue_over_the_end_kazoo_730},
    {"a number given twice", test_number_given_twice},
    {"the own node", test_find},
    {"shared, exclusive and permits", test_shared},
    {"the leases of a semaphore", test_leases},
    {"a shared try", test_shared_try},
    {"the nearest ones", test_nearest},
    {"holders", test_holders},
    {"whom to read", test_to_read},
    CU_TEST_INFO_NULL,
};

int main(void)
{
    return suite_run("zookeeper names", tests);
}
