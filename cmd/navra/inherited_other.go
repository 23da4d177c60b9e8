//go:build !unix

package main

// keepInherited has nothing to do: here a child gets the handles that are named for it, and no others.
func keepInherited() {}
