"""Seeds that once went wrong, and what they showed. A seed's history changes when the simulation does, so what it found
also has a test of its own where the mending is."""

FAILED: dict[int, str] = {
    83: "a purchase refused at the second try was called gone, though the first, cut short, had left a disk",
}
