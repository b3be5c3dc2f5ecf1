// Names for clang's thread-safety attributes; empty under other compilers. Violations are errors (-Wthread-safety
// -Werror).
#pragma once

#if defined(__clang__)
#define INGOT_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define INGOT_THREAD_ATTRIBUTE(x)
#endif

#define INGOT_CAPABILITY(x) INGOT_THREAD_ATTRIBUTE(capability(x))
#define INGOT_SCOPED_CAPABILITY INGOT_THREAD_ATTRIBUTE(scoped_lockable)
#define INGOT_GUARDED_BY(x) INGOT_THREAD_ATTRIBUTE(guarded_by(x))
#define INGOT_REQUIRES(...) INGOT_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define INGOT_EXCLUDES(...) INGOT_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define INGOT_ACQUIRE(...) INGOT_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define INGOT_RELEASE(...) INGOT_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
