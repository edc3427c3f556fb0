"""Commands for planning: simulations of policies, reports, recorded history."""
