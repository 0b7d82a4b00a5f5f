/* Sentences go to standard error, also to one that the program has chosen itself, and never into other files of the program that
 * have become descriptor 2. */
#include "check.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fake_driver.h"
#include "process/report.h"
#include "system/log.h"

static char path[] = "/tmp/orion-report-XXXXXX";

/* Makes `fd` the descriptor 2 while the hook writes a sentence and a line of its log. */
static void say_with(int fd)
{
    int kept = dup(STDERR_FILENO);
    close(STDERR_FILENO);
    if (fd >= 0) dup2(fd, STDERR_FILENO);
    atomic_store(&orion_the_process->said, 0);
    orion_say_once(orion_the_process, ORION_SAY_REFUSED);
    orion_log(ORION_LOG_ERROR, "a line");
    dup2(kept, STDERR_FILENO);
    close(kept);
}

/* How many lines come out of `from`. */
static unsigned lines_in(int from)
{
    char text[1024];
    unsigned lines = 0;
    ssize_t length = read(from, text, sizeof text);
    for (ssize_t i = 0; i < length; i++) lines += text[i] == '\n';
    return lines;
}

static unsigned lines_in_file(int flags)
{
    int fd = open(path, O_RDWR | O_TRUNC | flags);
    CHECK(fd > STDERR_FILENO);
    say_with(fd);
    close(fd);
    fd = open(path, O_RDONLY);
    unsigned lines = lines_in(fd);
    close(fd);
    return lines;
}

static unsigned lines_between(const int ends[2])
{
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    say_with(ends[1]);
    unsigned lines = lines_in(ends[0]);
    close(ends[0]);
    close(ends[1]);
    return lines;
}

static void a_log_that_the_program_has_opened_gets_them(void) { CHECK(lines_in_file(O_APPEND) == 2); }

static void a_file_of_the_program_does_not(void) { CHECK(lines_in_file(0) == 0); }

static void a_pipe_gets_them(void)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    CHECK(lines_between(ends) == 2);
}

static void a_connection_does_not(void)
{
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(lines_between(ends) == 0);
}

/* Also one that is neither appended to nor a pipe: the test starts itself with such a file. */
static void what_it_was_at_the_start_gets_them(const char *program)
{
    char command[4200];
    snprintf(command, sizeof command, "'%s' start 2> %s", program, path);
    CHECK(system(command) == 0);
    int fd = open(path, O_RDONLY);
    CHECK(lines_in(fd) == 2);
    close(fd);
}

int main(int count, char **arguments)
{
    fake_gpu(ORION_ROLE_BE);
    if (count > 1) {
        say_with(dup(STDERR_FILENO));
        return 0;
    }
    int made = mkstemp(path);
    CHECK(made >= 0);
    close(made);
    say_with(-1);
    a_log_that_the_program_has_opened_gets_them();
    a_pipe_gets_them();
    what_it_was_at_the_start_gets_them(arguments[0]);
    a_file_of_the_program_does_not();
    a_connection_does_not();
    unlink(path);
    puts("report: ok");
    return 0;
}
