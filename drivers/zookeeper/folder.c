/* folder.c - makes the folder of a claim, in the same flight as its node. */
#include "claim.h"

static void folder_made(struct driver *driver, struct request *request)
{
    struct claim *claim = claim_arrived(driver, request);
    if (claim != NULL)
        claim->folder_rc = request->rc;
}

bool claim_make_folder(struct driver *driver, struct claim *claim)
{
    const struct name *name = claim->name;
    bool stays = driver->style == STYLE_KAZOO_SEMAPHORE && claim->part == PART_LEASES;
    if (claim->folder_tries > 1)
        send_root(driver, NULL);
    if (name->above != NULL)
        send_create(driver, name->above, NULL, "", 0, ZOO_CONTAINER, (struct reply_to){0});
    return claim_sent(driver, claim,
                      send_create(driver, name->folder, NULL, "", 0,
                                  stays ? ZOO_PERSISTENT : ZOO_CONTAINER, /* kazoo counts on it */
                                  claim_reply(claim, folder_made)));
}
