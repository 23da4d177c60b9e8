// Package e2e holds navra's end-to-end tests: they build the binary and drive it from outside, over stdio and HTTP, with real
// processes as upstreams and the official SDKs as clients. It has no code of its own.
package e2e
