// Package sweeptest ends what tests have started and removes what they have made, also when they are
// interrupted in the middle. A package whose tests start processes has it in its TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(sweeptest.Main(m)) }
package sweeptest
