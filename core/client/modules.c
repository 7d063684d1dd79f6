/* modules.c - the public functions about modules: those in an open client's stack, and those on the machine. */
#include "client/client.h"

#include <stdlib.h>
#include <string.h>

#include "config/schema.h"
#include "modules/loader_internal.h"

static void fill(mortise_module_info *info, const struct instance *instance)
{
    mortise_module_info all = {.size = info->size,
                               .name = instance->module.name,
                               .section = instance->section,
                               .version = instance->module.version,
                               .summary = instance->module.summary,
                               .path = instance->path,
                               .kind = module_kind_word(instance->module.kind),
                               .abi = instance->module.abi,
                               .capabilities = instance->capabilities};
    memcpy(info, &all, info->size < sizeof(all) ? info->size : sizeof(all));
}

bool mortise_module_at(mortise_client *handle, size_t index, mortise_module_info *info)
{
    struct client *client;
    if (info == NULL || info->size < sizeof(info->size) ||
        client_enter(handle, &client, NULL) != MORTISE_OK)
        return false;
    struct instance *instance = client->top;
    if (index > 0) { /* the others, the last opened first */
        instance = client->loader.instances;
        while (instance != NULL && (instance == client->top || --index > 0))
            instance = instance->next;
    }
    if (instance != NULL)
        fill(info, instance);
    client_leave(client);
    return instance != NULL;
}

static bool list_core(mortise_module_callback each, void *user_data)
{
    mortise_module_info info = {.size = sizeof(info),
                                .name = "mortise",
                                .section = "mortise",
                                .version = MORTISE_VERSION_TEXT,
                                .summary = "the core: one lock API, the local queue, the watchdog",
                                .path = "",
                                .kind = "core",
                                .abi = MORTISE_MODULE_ABI};
    mortise_option_info *options = option_infos(core_options, CORE_OPTION_COUNT);
    bool more = each(&info, options, options == NULL ? 0 : CORE_OPTION_COUNT,
                     options == NULL ? "out of memory" : NULL, user_data);
    free(options);
    return more;
}

static mortise_status list_modules(const char *where, mortise_module_callback each, void *user_data,
                                   mortise_error *error)
{
    struct config *config;
    mortise_status status = config_load(where, &config, error);
    if (status != MORTISE_OK)
        return status;
    if (list_core(each, user_data))
        status = loader_scan(config, each, user_data, error);
    config_free(config);
    return status;
}

mortise_status mortise_modules(const char *where, mortise_module_callback each, void *user_data,
                               mortise_error *error)
{
    if (each == NULL)
        return failed(error, MORTISE_INVALID, "mortise_modules: no callback");
    client_begin_call();
    mortise_status status = list_modules(where, each, user_data, error);
    client_end_call();
    return status;
}

struct schema_of {
    mortise_text_callback write;
    void *user_data;
    bool found;
};

static void print_schema(const mortise_module *module, void *argument)
{
    struct schema_of *of = argument;
    const char *text = module->schema == NULL ? NULL : module->schema();
    of->found = text != NULL;
    if (text != NULL)
        of->write(text, strlen(text), of->user_data);
}

static mortise_status tell_schema(const char *where, const char *module,
                                  mortise_text_callback write, void *user_data,
                                  mortise_error *error)
{
    struct config *config;
    mortise_status status = config_load(where, &config, error);
    if (status != MORTISE_OK)
        return status;
    struct schema_of of = {write, user_data, false};
    status = loader_peek(config, module, print_schema, &of, error);
    if (status == MORTISE_OK && !of.found)
        status = failed(error, MORTISE_NOTSUP, "module \"%s\" has no schema to print", module);
    config_free(config);
    return status;
}

mortise_status mortise_schema(const char *where, const char *module, mortise_text_callback write,
                              void *user_data, mortise_error *error)
{
    if (module == NULL || write == NULL)
        return failed(error, MORTISE_INVALID, "mortise_schema: no module or no callback");
    client_begin_call();
    mortise_status status = tell_schema(where, module, write, user_data, error);
    client_end_call();
    return status;
}
