-- A page has room for another version of each of its jobs. Those of a claim of many are next to each
-- other, and each row whose new version is on another page has new entries in both indexes.
ALTER TABLE podyard.jobs SET (fillfactor = 50);
