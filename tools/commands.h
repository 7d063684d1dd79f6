/* commands.h - the commands of `mortise`, for the table in main.c. Only main.c calls them.
 *
 * Each command gets its own argv (argv[0] is its name) and returns the exit code of the process. */
#ifndef MORTISE_TOOLS_COMMANDS_H
#define MORTISE_TOOLS_COMMANDS_H

int command_run(int argc, char **argv);
int command_status(int argc, char **argv);
int command_list(int argc, char **argv);
int command_break(int argc, char **argv);
int command_watch(int argc, char **argv);
int command_check(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_drivers(int argc, char **argv);
int command_schema(int argc, char **argv);
int command_migrate(int argc, char **argv);
int command_serve(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_witness(int argc, char **argv);

#endif
