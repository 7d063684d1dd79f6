/* handshake.c - whether the core can use a module that was loaded.
 *
 * Compares its table with this library's field by field before anything in it is used (R11); the message names the
 * field. The rules are those of driver.h (VERSIONS). The oldest sizes are those of the last field in the first build of
 * this ABI. Knows neither folders nor dlopen. */
#include "modules/loader_internal.h"

#include "base/status.h"
#include "config/schema.h"

#include <stdalign.h>
#include <stdio.h>
#include <string.h>

#define OPTION_COUNT_MAX 1000
#define END_OF(type, field) (offsetof(type, field) + sizeof(((type *)NULL)->field))
#define OLDEST_MODULE END_OF(mortise_module, close)
#define OLDEST_OP END_OF(mortise_op, emitted)
#define OLDEST_INFO END_OF(mortise_info, waiters)

const char *module_kind_word(uint32_t kind)
{
    switch (kind) {
    case MORTISE_KIND_DRIVER:
        return "driver";
    case MORTISE_KIND_PLUGIN:
        return "plugin";
    case MORTISE_KIND_OBSERVER:
        return "observer";
    default:
        return NULL;
    }
}

static mortise_status check_size(const char *path, const char *field, size_t found, size_t oldest,
                                 size_t ours, mortise_error *error)
{
    if (found > ours)
        return failed(error, MORTISE_CONFIG,
                      "%s: %s is %zu, expected at most %zu: built for a newer mortise", path, field,
                      found, ours);
    if (found < oldest)
        return failed(error, MORTISE_CONFIG, "%s: %s is %zu, expected %zu to %zu", path, field,
                      found, oldest, ours);
    return MORTISE_OK;
}

static mortise_status check_sizes(const char *path, const mortise_module *found,
                                  mortise_error *error)
{
    mortise_status status = check_size(path, "module_size", found->module_size, OLDEST_MODULE,
                                       sizeof(mortise_module), error);

    if (status == MORTISE_OK && found->module_size % alignof(mortise_module) != 0)
        status = failed(error, MORTISE_CONFIG, "%s: module_size is %u, expected a multiple of %zu",
                        path, found->module_size, alignof(mortise_module));
    if (status == MORTISE_OK)
        status = check_size(path, "op_size", found->op_size, OLDEST_OP, sizeof(mortise_op), error);
    if (status == MORTISE_OK)
        status = check_size(path, "info_size", found->info_size, OLDEST_INFO, sizeof(mortise_info),
                            error);
    if (status == MORTISE_OK && found->option_size != sizeof(mortise_option))
        status = failed(error, MORTISE_CONFIG, "%s: option_size is %u, expected %zu", path,
                        found->option_size, sizeof(mortise_option));
    return status;
}

static mortise_status check_head(const char *path, const mortise_module *found,
                                 mortise_error *error)
{
    if (found->magic != MORTISE_MODULE_MAGIC)
        return failed(error, MORTISE_CONFIG, "%s: magic is 0x%08x, expected 0x%08x: not a module",
                      path, found->magic, MORTISE_MODULE_MAGIC);
    if (found->abi != MORTISE_MODULE_ABI)
        return failed(error, MORTISE_CONFIG,
                      "%s: abi is %u, expected %d: built for another mortise", path, found->abi,
                      MORTISE_MODULE_ABI);
    return check_sizes(path, found, error);
}

/* The first required field that is not there, or NULL. */
static const char *missing_field(const mortise_module *module)
{
    bool takes_ops = module->kind != MORTISE_KIND_OBSERVER;
    const struct {
        const char *field;
        bool there;
    } required[] = {
        {"name", module->name != NULL},
        {"version", module->version != NULL},
        {"summary", module->summary != NULL},
        {"options", module->options != NULL || module->option_count == 0},
        {"open", module->open != NULL},
        {"start", !takes_ops || module->start != NULL},
        {"cancel", !takes_ops || module->cancel != NULL},
        {"interest", !takes_ops || module->interest != NULL},
        {"turn", !takes_ops || module->turn != NULL},
        {"close", module->close != NULL},
        {"observe", takes_ops || module->observe != NULL},
    };

    for (size_t i = 0; i < sizeof(required) / sizeof(required[0]); i++)
        if (!required[i].there)
            return required[i].field;
    return NULL;
}

/* A plugin makes ops and infos of its own, and other modules rely on their full size. */
static mortise_status check_plugin(const char *path, const mortise_module *module,
                                   mortise_error *error)
{
    if (module->op_size != sizeof(mortise_op))
        return failed(error, MORTISE_CONFIG, "%s: op_size is %u, expected %zu of a plugin", path,
                      module->op_size, sizeof(mortise_op));
    if (module->info_size != sizeof(mortise_info))
        return failed(error, MORTISE_CONFIG, "%s: info_size is %u, expected %zu of a plugin", path,
                      module->info_size, sizeof(mortise_info));
    return MORTISE_OK;
}

static mortise_status check_content(const char *path, const mortise_module *module,
                                    mortise_error *error)
{
    char problem[PROBLEM_SIZE];
    const char *missing = missing_field(module);

    if (module_kind_word(module->kind) == NULL)
        return failed(error, MORTISE_CONFIG, "%s: kind is %u, expected 1 to 3", path, module->kind);
    if (missing != NULL)
        return failed(error, MORTISE_CONFIG, "%s: %s is missing, which every %s must have", path,
                      missing, module_kind_word(module->kind));
    if (!module_name_sound(module->name, strlen(module->name)))
        return failed(error, MORTISE_CONFIG,
                      "%s: name is not 1 to %d letters, digits, '_', '-' and '+'", path,
                      MODULE_NAME_MAX);
    if (module->option_count > OPTION_COUNT_MAX)
        return failed(error, MORTISE_CONFIG, "%s: option_count is %zu, expected at most %d", path,
                      module->option_count, OPTION_COUNT_MAX);
    if (!schema_sound(module->options, module->option_count, problem, sizeof(problem)))
        return failed(error, MORTISE_CONFIG, "%s: options: %s", path, problem);
    return module->kind == MORTISE_KIND_PLUGIN ? check_plugin(path, module, error) : MORTISE_OK;
}

mortise_status handshake(const char *path, const mortise_module *found, mortise_module *module,
                         mortise_error *error)
{
    mortise_status status = check_head(path, found, error);

    if (status != MORTISE_OK)
        return status;
    memset(module, 0, sizeof(*module));
    memcpy(module, found, found->module_size);
    if (found->op_size <
        END_OF(mortise_op, permits)) /* it would take a shared claim for an exclusive one */
        module->capabilities &= ~(uint32_t)(MORTISE_CAP_SHARED | MORTISE_CAP_PERMITS);
    return check_content(path, module, error);
}
