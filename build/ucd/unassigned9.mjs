// Prints the ranges of code points that Unicode 9.0.0 had not assigned, one
// "first last" a line in hex. Run with node where @unicode/unicode-9.0.0 is
// installed; extract.py reads it.
import ranges from '@unicode/unicode-9.0.0/General_Category/Unassigned/ranges.mjs';

for (const { begin, end } of ranges) {
  console.log(begin.toString(16), (end - 1).toString(16));
}
