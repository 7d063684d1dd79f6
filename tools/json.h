/* json.h - writes JSON that is valid whatever bytes a name holds. */
#ifndef MORTISE_TOOLS_JSON_H
#define MORTISE_TOOLS_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Each function below writes a value, or a member `"key":value`, and a comma before it unless it is the first. */
struct json {
    FILE *out;
    bool follows; /* this object or array has a value already */
};
void json_open(struct json *json, char bracket);  /* '{' or '[' as a value */
void json_close(struct json *json, char bracket); /* '}' or ']' */
void json_key(struct json *json, const char *key);
void json_text(struct json *json, const char *key, const char *text);
void json_int(struct json *json, const char *key, int64_t number);
void json_uint(struct json *json, const char *key, uint64_t number);
void json_bool(struct json *json, const char *key, bool value);
void json_null(struct json *json, const char *key);

#endif
