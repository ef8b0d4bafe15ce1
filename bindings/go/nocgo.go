//go:build !cgo

package distag

// One sentence instead of "build constraints exclude all Go files".
var _ int = "distag needs cgo: set CGO_ENABLED=1, and install gcc and pkg-config"
