#!/bin/sh
# audit.sh ARCHIVE: fails, naming object and symbol, if the library calls an allocator, starts or moves a thread, takes a
# signal, writes to stdio, ends the process or maps memory. Exempt are objects named config_*.o (libconfig's side),
# log_stderr.o, which only a program that names it links, and for mapping node_memory.o (the memory that ranks share) and
# link_tcp.o (an exchange region of its own, at open).
set -u
[ -r "${1:-}" ] || { echo "audit.sh: no archive \"${1:-}\"" >&2; exit 2; }
forbidden='malloc|calloc|realloc|reallocarray|free|aligned_alloc|posix_memalign|memalign|valloc|strdup|strndup|asprintf|vasprintf'
forbidden="$forbidden|getline|getdelim|fopen|fdopen|opendir|open_memstream|getaddrinfo|gethostbyname"
forbidden="$forbidden|pthread_create|thrd_create|clone|fork|vfork|signal|sigaction|sigprocmask|pthread_sigmask|raise|kill"
forbidden="$forbidden|sched_setaffinity|pthread_setaffinity_np|sched_setscheduler|setpriority|nice"
forbidden="$forbidden|printf|fprintf|vprintf|vfprintf|dprintf|puts|fputs|putchar|fputc|putc|fwrite|perror|stdout|stderr"
forbidden="$forbidden|__printf_chk|__fprintf_chk|__vfprintf_chk|writev|gf_log_stderr"
forbidden="$forbidden|exit|_exit|_Exit|quick_exit|abort|atexit|__assert_fail|mmap|mmap64|munmap|mremap|brk|sbrk"
found=$(nm -u "$1" 2>/dev/null | awk -v words="^($forbidden)\$" '
    /^[^ ].*:$/ { object = $0; next }
    $1 == "U" || $1 == "w" { name = $2; sub(/@.*/, "", name)
        if (object ~ /^(node_memory|link_tcp)\.o/ && name ~ /^m(un)?map(64)?$/) next
        if (object !~ /^(config_|log_stderr\.o)/ && name ~ words) print object, name }')
[ -z "$found" ] && { echo "audit: $1 calls no allocator, thread, signal, stdio, exit or map function"; exit 0; }
echo "audit: $1 must not call:" >&2
echo "$found" >&2
exit 1
