//go:build cgo && !distag_load

package distag

const isLinked = true
