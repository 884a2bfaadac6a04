"""What tests of the edges share: a real server process, folders of their own, and waiting for something real."""
