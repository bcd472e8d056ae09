package wire

// Copying is the copies of hot prefixes that the gateway's VMs are making.
func (k Keys) Copying() string { return k.prefix + "copying" }
