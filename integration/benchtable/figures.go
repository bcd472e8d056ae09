package main

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
)

// figures are those of the table itself, without a host around it.
type figures struct {
	Lookups []lookupFigures `json:"lookups"`
	Lengths []lengthFigures `json:"lookups_by_length"`
	Covers  []coverFigures  `json:"covers"`
	Entries []holderFigures `json:"million_entries"`
}

// measureFigures plays so many requests of each kind of conversation, looks a
// fortieth as many prompts of each length up, fills the
// caches of fleets (workers and tokens of each), and a table of so many entries.
func measureFigures(requests int, fleets map[int]int, entries int) (f figures) {
	for _, t := range lookupTalks {
		f.Lookups = append(f.Lookups, measureLookups(t, requests))
	}
	f.Lengths = measureLengths(requests / 40)
	for _, workers := range slices.Sorted(maps.Keys(fleets)) {
		f.Covers = append(f.Covers, covers(workers, fleets[workers]))
	}
	for _, holders := range []int{1, 4, 300} {
		f.Entries = append(f.Entries, holds(entries, holders))
	}
	return f
}

func printFigures(out io.Writer, f figures) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(f)
}
