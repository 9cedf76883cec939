"""Different optimizers for different weights, chosen by patterns of paths."""
