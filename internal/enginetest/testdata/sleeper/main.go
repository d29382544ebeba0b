// Sleeper runs until it is killed.
package main

import "time"

func main() { time.Sleep(24 * time.Hour) }
