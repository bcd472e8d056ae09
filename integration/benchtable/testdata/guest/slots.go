//go:build !million

package main

// slotBits leaves a table of 100,000 entries two and a half times the room.
const slotBits = 18
