"""What tests of the edges share: a real server process, separate folders, and waiting for something real."""
