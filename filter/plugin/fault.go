package plugin

// fault is nil in the product. Builds for failure tests (tag faults) set it to
// break a stream at a point: "headers" is the very start of the header
// callback, before anything is stripped, "body" the end of a held body. An
// answer of true holds the stream for ever.
var fault func(s *stream, point string) (hold bool)

func (s *stream) faulty(point string) bool { return fault != nil && fault(s, point) }
