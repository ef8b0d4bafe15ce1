module distag

go 1.19
