// Empty: a Go package may declare functions without a body (the linknames of
// sdk_callbacks.go) only if it has an assembly file.
