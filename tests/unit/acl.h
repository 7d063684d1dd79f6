/* acl.h - a folder with an ACL, for tests of who may write it. */
#ifndef MORTISE_TESTS_ACL_H
#define MORTISE_TESTS_ACL_H

#include <CUnit/CUnit.h>

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/xattr.h>

/* As `setfacl -m u:WHO:rwx` does for a folder of the mode 0770. False: this file system has no ACLs. */
static inline bool acl_let_in(const char *place, uid_t who)
{
    struct entry {
        uint16_t tag, permissions;
        uint32_t id;
    };
    const struct entry list[] = {
        {1, 7, UINT32_MAX},                      /* the owner */
        {2, 7, who},         {4, 7, UINT32_MAX}, /* the group */
        {16, 7, UINT32_MAX},                     /* the mask */
        {32, 0, UINT32_MAX},                     /* others */
    };
    struct {
        uint32_t version;
        struct entry list[sizeof(list) / sizeof(list[0])];
    } acl = {.version = htole32(2)};
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
        acl.list[i] = (struct entry){.tag = htole16(list[i].tag),
                                     .permissions = htole16(list[i].permissions),
                                     .id = htole32(list[i].id)};
    int rc = setxattr(place, "system.posix_acl_access", &acl, sizeof(acl), 0);
    CU_ASSERT_TRUE(rc == 0 || errno == EOPNOTSUPP);
    return rc == 0;
}

#endif
