//go:build !linux

package disk

// whyVolatile is not known here.
func whyVolatile(string) string { return "" }
