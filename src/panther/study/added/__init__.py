"""What slides add to what is known without them."""
