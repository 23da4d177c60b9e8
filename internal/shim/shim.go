// Package shim keeps what a child starts from outliving it, or navra. navra does not start a child itself: it starts its own
// program again as the child's supervisor, which adopts every descendant that loses its parent, also one that has left its
// process group, and kills all of them when the child ends, when it is told to, or when navra is gone, however that came.
// Only Linux can do this. The package knows nothing of MCP.
package shim

// Word is the first argument of a program that is to be a supervisor. What follows it is between Start and Enter.
const Word = "__shim"
