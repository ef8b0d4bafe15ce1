module distagtests

go 1.19

require distag v0.0.0

replace distag => ../../../bindings/go
