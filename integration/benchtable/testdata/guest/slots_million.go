//go:build million

package main

// slotBits leaves a table of a million entries twice the room.
const slotBits = 21
