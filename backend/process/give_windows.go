package process

func (p *pod) give([]string, *identity) error { return nil }
