-- What has ended, by when, for those that are kept no longer.
CREATE INDEX uses_ended ON podyard.uses (to_time) WHERE NOT is_open;
